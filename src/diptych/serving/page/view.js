// Show answers: words that highlight regions, regions that highlight words, boxes, tables, sheets.

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

function svg(name, given, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

function rectangle([x, y, width, height]) {
  return svg("rect", { x, y, width: Math.max(width, 2), height: Math.max(height, 2) });
}

const percent = (share) => `${(100 * share).toFixed(share > 0.1 ? 0 : 1)} %`;
const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

function canvas(picture, alt) {
  return element("div", { class: "canvas" }, element("img", { src: picture, alt }));
}

// Show the words one after another; resolves after the last.
async function appear(buttons, into) {
  for (const button of buttons) {
    into.append(button);
    if (!still()) await new Promise((resolve) => setTimeout(resolve, 70));
  }
}

function explained(picture, text, told) {
  const shown = canvas(picture, "The picture, with the regions that the detector found");
  const words = element("p", { class: "words", role: "group", "aria-label": text || "no words" });
  const note = element("p", { class: "note", role: "status" }, "Point at a word to see the regions that weighed on it, or at a region to see its words.");
  if (!told) {
    words.append(text);
    return { nodes: [shown, words], ready: Promise.resolve() };
  }
  const most = Math.max(0.5, ...told.weights.flat());
  const name = (region) => `region ${region + 1}${told.regions[region].label ? `, ${told.regions[region].label}` : ""}`;
  const strong = (pairs) => pairs.filter(([, weight]) => weight > 0.1).sort((one, other) => other[1] - one[1]).slice(0, 3);
  const nats = (weight) => `${weight >= 0 ? "+" : "−"}${Math.abs(weight).toFixed(1)} nats`;
  const overlay = svg("svg", { viewBox: `0 0 ${told.width} ${told.height}`, preserveAspectRatio: "none", role: "group", "aria-label": "Regions" });
  const boxes = told.regions.map((region, row) => {
    const box = svg("g", { class: "region", tabindex: "0", role: "button", "aria-label": `${name(row)}, confidence ${percent(region.score)}` }, rectangle(region.box));
    const light = () => {
      buttons.forEach((button, word) => button.classList.toggle("lit", told.weights[word][row] > 0.1));
      boxes.forEach((other) => other.classList.toggle("lit", other === box));
      const found = strong(told.words.map((word, at) => [word, told.weights[at][row]]));
      note.textContent = found.length ? `${name(row)} weighed on ${found.map(([word, weight]) => `“${word}” (${nats(weight)})`).join(", ")}.` : `${name(row)} weighed on no word by itself.`;
    };
    for (const event of ["pointerenter", "focus", "click"]) box.addEventListener(event, light);
    for (const event of ["pointerleave", "blur"]) box.addEventListener(event, dark);
    return box;
  });
  const buttons = told.words.map((word, at) => {
    const light = () => {
      boxes.forEach((box, row) => {
        const share = Math.max(0, told.weights[at][row]) / most;
        box.firstChild.style.fillOpacity = (0.75 * share).toFixed(2);
        box.classList.toggle("lit", told.weights[at][row] > 0.1);
      });
      buttons.forEach((other) => other.classList.toggle("lit", other === button));
      const found = strong(told.regions.map((_, row) => [name(row), told.weights[at][row]]));
      note.textContent = found.length ? `“${word}”: ${found.map(([where, weight]) => `${where} (${nats(weight)})`).join("; ")}.` : `No region alone changes “${word}” much.`;
    };
    const button = element("button", { type: "button", onpointerenter: light, onfocus: light, onclick: light, onpointerleave: dark, onblur: dark }, word);
    return button;
  });
  function dark() {
    boxes.forEach((box) => { box.classList.remove("lit"); box.firstChild.style.fillOpacity = 0; });
    buttons.forEach((button) => button.classList.remove("lit"));
  }
  // The smallest regions on top, so that each can be pointed at.
  const area = (box) => told.regions[boxes.indexOf(box)].box[2] * told.regions[boxes.indexOf(box)].box[3];
  overlay.append(...[...boxes].sort((one, other) => area(other) - area(one)));
  shown.append(overlay);
  return { nodes: [shown, words, note], ready: appear(buttons, words) };
}

function likeliest(caption, rows) {
  return element("table", {}, element("caption", { class: "note" }, caption), element("tbody", {}, ...rows.map(([name, share]) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, percent(share))))));
}

function boxed(picture, box, summary) {
  const shown = canvas(picture, `The picture with a box around: ${summary}`);
  const image = shown.firstChild;
  image.addEventListener("load", () => {
    const view = svg("svg", { viewBox: `0 0 ${image.naturalWidth} ${image.naturalHeight}`, preserveAspectRatio: "none", "aria-hidden": "true" }, svg("g", { class: "found" }, rectangle(box)));
    shown.append(view);
  });
  return shown;
}

function sheet(pictures, summary) {
  return element("ol", { class: "sheet" }, ...pictures.map(([name, score], row) => element("li", {}, element("img", { src: `/v1/pictures/${name}`, alt: `Number ${row + 1} for: ${summary}`, loading: "lazy" }), score.toFixed(3))));
}

// Return the nodes of an answer (PageView in tasks/interface.py), its summary, and a promise for when all words are shown.
export function shown(view, picture) {
  const { summary, words, explanation, box, verdicts, notes, items, tables } = view;
  let nodes = [], ready = Promise.resolve();
  if (words !== undefined) ({ nodes, ready } = explained(picture, words, explanation));
  else if (box) nodes = [boxed(picture, box, summary)];
  else if (!view.sheet.length) nodes = [canvas(picture, "The picture")];
  nodes.push(...verdicts.map((text) => element("p", { class: "verdict" }, text)), ...notes.map((text) => element("p", { class: "note" }, text)));
  if (items.length) nodes.push(element("ul", {}, ...items.map((text) => element("li", {}, text))));
  nodes.push(...tables.map(({ title, rows }) => likeliest(title, rows)));
  if (view.sheet.length) nodes.push(sheet(view.sheet, summary));
  return { nodes, ready, summary };
}
