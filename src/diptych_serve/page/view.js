// Show answers: the stage (image and regions), words that highlight regions and regions that highlight words, tables, sheets.

export const byId = (name) => document.getElementById(name);

export function element(name, given = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...inside.filter((one) => one !== null && one !== undefined));
  return made;
}

const percent = (share) => `${(100 * share).toFixed(share > 0.1 ? 0 : 1)} %`;
const STRONG = 0.1; // influence (log-probability) from which a word depends on a region
const TAGGED = 8; // regions whose labels show without being chosen

// The stage

export function showPicture(address, alt) {
  const image = byId("chosen");
  byId("stage").hidden = byId("remove").hidden = !address;
  byId("drop-text").hidden = Boolean(address);
  byId("boxes").replaceChildren();
  byId("regions").hidden = true;
  image.alt = alt;
  if (address) image.src = address; else image.removeAttribute("src");
}

function showBoxes(boxes) {
  if (boxes[0]?.parentNode === byId("boxes")) return;
  byId("boxes").replaceChildren(...boxes);
  byId("regions").hidden = !boxes.length;
  uncover();
}

// Hide each label that would cover an earlier one; it shows when its region is chosen.
export function uncover() {
  const shown = [];
  for (const label of document.querySelectorAll("#boxes i")) {
    label.parentNode.classList.remove("covering");
    const own = label.getBoundingClientRect();
    const covers = shown.some((one) => own.left < one.right && one.left < own.right && own.top < one.bottom && one.top < own.bottom);
    label.parentNode.classList.toggle("covering", covers);
    if (own.width && !covers) shown.push(own);
  }
}

// A region as a button over the image; `box` is left, top, width and height in an image of `size` pixels.
// `rank`: its place by influence; null for a region that changes no word, which shows only among all regions.
function region(box, size, label, name, rank, kind = "button") {
  const given = kind === "button" ? { type: "button" } : { role: "img" };
  const made = element(kind, { ...given, class: "region", "aria-label": name }, label ? element("i", {}, label) : null);
  const [left, top, width, height] = box.map((end, row) => (100 * end) / size[row % 2]);
  Object.assign(made.style, { left: `${left}%`, top: `${top}%`, width: `${Math.max(width, 1)}%`, height: `${Math.max(height, 1)}%` });
  made.classList.toggle("right", left > 75);
  made.classList.toggle("high", top < 7);
  made.classList.toggle("quiet", rank >= TAGGED);
  made.classList.toggle("idle", rank === null);
  return made;
}

// Call `light` when the mouse enters the node, the node gets the focus, or is tapped; call `dark` with the node afterwards.
function lights(node, light, dark) {
  for (const name of ["pointerenter", "pointerleave"]) node.addEventListener(name, (event) => { if (event.pointerType === "mouse") name === "pointerenter" ? light() : dark(node); });
  for (const name of ["focus", "click"]) node.addEventListener(name, light);
  node.addEventListener("blur", () => dark(node));
}

// How much likelier a word is with a region than without it.
function times(weight) {
  const ratio = Math.exp(weight);
  return ratio > 1000 ? "over 1000 times" : `${ratio.toFixed(ratio < 10 ? 1 : 0)} times`;
}

function explained(text, explanation) {
  const words = element("p", { class: "words", role: "group", "aria-label": text || "no words" });
  if (!explanation) {
    words.append(text);
    return { nodes: [words], claim: () => showBoxes([]) };
  }
  const { regions, weights, width, height } = explanation;
  const idle = "Choose a word to see the regions that it depends on, or a region to see its words.";
  const note = element("p", { class: "note", role: "status" }, idle);
  const name = (row) => `region ${row + 1}${regions[row].label ? `, ${regions[row].label}` : ""}`;
  // Regions that cover each other have equal weights; the first stands for all.
  const columns = regions.map((_, row) => weights.map((line) => line[row]));
  const first = columns.map(String).map((column, row, all) => all.indexOf(column) === row);
  const most = columns.map((column, row) => (first[row] ? Math.max(0, ...column) : 0));
  const rank = (row) => (most[row] > STRONG ? most.filter((one) => one > most[row]).length : null);
  const strong = (pairs) => pairs.filter(([, weight]) => weight > STRONG).sort((one, other) => other[1] - one[1]).slice(0, 3);
  const boxes = regions.map(({ box, label, score }, row) => region(box, [width, height], label && `${label} ${percent(score)}`, `${name(row)} ${percent(score)}`, rank(row)));
  const buttons = explanation.words.map((word) => element("button", { type: "button" }, word));
  // The smallest regions on top, so that each can be pointed at.
  const area = (box) => { const [, , w, h] = regions[boxes.indexOf(box)].box; return w * h; };
  const stacked = [...boxes].sort((one, other) => area(other) - area(one));
  const claim = () => showBoxes(stacked);
  let last = null;  // the node that was lit last: a node that the mouse leaves later must not darken it
  const dark = (node = last) => {
    if (node !== last) return;
    [...boxes, ...buttons].forEach((one) => one.classList.remove("lit"));
    note.textContent = idle;
  };
  const light = (chosen, others, isLit, text) => {
    claim();
    dark();
    chosen.classList.add("lit");
    last = chosen;
    others.forEach((one, row) => one.classList.toggle("lit", isLit(row)));
    note.textContent = text;
  };
  boxes.forEach((box, row) => lights(box, () => {
    const pairs = strong(explanation.words.map((word, at) => [word, weights[at][row]]));
    const text = pairs.map(([word, weight]) => `“${word}” ${times(weight)} likelier`).join(", ");
    light(box, buttons, (at) => weights[at][row] > STRONG, pairs.length ? `${name(row)} makes ${text}.` : `${name(row)} alone changes no word much.`);
  }, dark));
  buttons.forEach((button, at) => lights(button, () => {
    const pairs = strong(regions.map((_, row) => [name(row), first[row] ? weights[at][row] : 0]));
    const text = pairs.map(([where, weight]) => `${times(weight)} likelier with ${where}`).join("; ");
    light(button, boxes, (row) => first[row] && weights[at][row] > STRONG, pairs.length ? `“${explanation.words[at]}” is ${text}.` : `No region alone changes “${explanation.words[at]}” much.`);
  }, dark));
  // The text itself, with its words as buttons: signs stand where the text has them.
  let end = 0;
  buttons.forEach((button, at) => {
    const place = text.toLowerCase().indexOf(explanation.words[at].toLowerCase(), end);
    words.append(place < 0 ? " " : text.slice(end, place), button);
    end = place < 0 ? end : place + explanation.words[at].length;
  });
  return { nodes: [words, note], claim };
}

function likeliest({ title, rows }) {
  const row = ([name, share]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, element("meter", { value: share, "aria-label": name }), percent(share)));
  return element("table", {}, element("caption", { class: "note" }, title), element("tbody", {}, ...rows.map(row)));
}

function sheet(pictures, summary, take) {
  return element("ol", { class: "sheet" }, ...pictures.map(([id, score, name], row) => {
    const small = `/v1/pictures/${id}`, alt = `Number ${row + 1} for: ${summary}`;
    const link = element("a", { href: `${small}?large=true`, target: "_blank" }, element("img", { src: small, alt, loading: "lazy" }));
    return element("li", {}, link, element("span", { class: "name" }, name), element("span", {}, score.toFixed(3)),
      take && element("button", { type: "button", "aria-label": `Ask about ${name || `number ${row + 1}`}`, onclick: () => take(id, name || `number-${row + 1}`) }, "Ask about it"));
  }));
}

// Return the nodes of an answer (PageView in tasks/interface.py) and `claim`, which shows its regions on the stage.
// `size`: width and height of the image in pixels. `take(id, name)`: takes an image of a sheet; null: no task can.
export function shown(view, size, take) {
  const { summary, words, explanation, box, verdicts, notes, items, tables, answer } = view;
  let nodes = [], claim = () => showBoxes([]);
  if (words !== undefined) ({ nodes, claim } = explained(words, explanation));
  else if (box) {
    const found = region(box, size, summary, `The region found for: ${summary}`, 0, "div");
    found.classList.add("lit");
    claim = () => showBoxes([found]);
  }
  if (answer?.familiar === false) nodes.unshift(element("p", { class: "banner" }, "This image is unlike what this model was trained on; expect nonsense."));
  if (answer?.unread) nodes.unshift(element("p", { class: "banner" }, `${answer.unread[0].toUpperCase()}${answer.unread.slice(1)}.`));
  nodes.push(...verdicts.map((text) => element("p", { class: "verdict" }, text)), ...notes.map((text) => element("p", { class: "note" }, text)));
  if (items.length) nodes.push(element("ul", {}, ...items.map((text) => element("li", {}, text))));
  nodes.push(...tables.map(likeliest));
  if (view.sheet.length) nodes.push(sheet(view.sheet, summary, take));
  return { nodes, claim };
}
