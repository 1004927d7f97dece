// The page: an image, a task and its fields; the models' answers; earlier answers; a link to the settings.
// It knows no task by name: /v1/forms lists the fields of each task, and answers arrive arranged for display (PageView).
import { correction, download, forget, showCount } from "/corrections.js";
import { readHistory, thumbnail, writeHistory } from "/history.js";
import { listenForTheme } from "/theme.js";
import { byId, element, showPicture, shown, uncover } from "/view.js";

const VIEW = "application/vnd.diptych.page+json";
const state = { forms: {}, models: [], task: null, picture: null, asking: null, history: [], files: new Map() };

// `unseen` is read aloud only.
function say(text, unseen = "") { byId("status").replaceChildren(text, element("span", { class: "unseen" }, unseen)); }
function complain(text) {
  byId("error").textContent = text;
  if (!text) return;
  say("");
  byId("error").scrollIntoView({ block: "nearest" });
}
const capable = (task) => state.models.filter((model) => model.tasks.includes(task));

// The image

function load(file, source = null, button = null) {
  complain("");
  stop();
  if (state.picture) URL.revokeObjectURL(byId("chosen").src);
  [state.picture, state.source] = [file, source];
  showPicture(URL.createObjectURL(file), `The chosen image, ${file.name || "pasted"}`);
  byId("results").replaceChildren();
  markExample(button);
  say("The image is loaded.");
}

// Take an image and ask at once, unless a field has to be filled in first.
async function take(file, source = null, button = null) {
  if (!file) return;
  if (file.type && !file.type.startsWith("image/")) { complain(`“${file.name}” is not an image; choose a JPEG, PNG or WebP.`); return; }
  load(file, source, button);
  const task = [state.task, ...offered()].find((one) => state.forms[one]?.pictured);
  if (!task) return;
  if (task !== state.task) choose(task);
  const missing = missingField();
  if (missing) byId(`field-${missing.name}`).focus(); else await ask();
}

function removePicture() {
  stop();
  state.picture = null;
  showPicture(null, "");
  byId("results").replaceChildren();
  markExample(null);
  say("The image was removed.");
  byId("file").focus();
}

function markExample(chosen) {
  for (const one of byId("examples").children) one.setAttribute("aria-pressed", one === chosen);
}

// Take an image of the service: an example or a hit of a search.
async function takeServed(id, name, button = null) {
  const address = `/v1/pictures/${id}?large=true`;
  let found = null;
  try { found = await fetch(address); } catch { /* the service is gone: the next line reports it */ }
  if (!found?.ok) { complain("The image could not be loaded; is the service still running?"); return; }
  await take(new File([await found.blob()], name), address, button);
}

function listenForPictures() {
  for (const name of ["file", "camera"]) byId(name).addEventListener("change", (event) => { take(event.target.files[0]); event.target.value = ""; });
  const drop = byId("drop");
  for (const name of ["dragover", "dragenter"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => { event.preventDefault(); take(event.dataTransfer.files[0]); });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
    if (file) { event.preventDefault(); take(file); }
    else if (!event.target.closest?.("input, textarea") && /^(https?|file):/.test(event.clipboardData.getData("text/plain"))) complain("This page fetches no addresses; copy the image itself, or save it and choose the file.");
  });
  byId("chosen").addEventListener("load", ({ target }) => byId("stage").style.setProperty("--ratio", target.naturalWidth / target.naturalHeight));
  byId("chosen").addEventListener("error", () => { if (state.picture) say("This browser cannot show the image; the models may still read it."); });
  new ResizeObserver(uncover).observe(byId("boxes"));
  byId("remove").addEventListener("click", removePicture);
  byId("regions").addEventListener("click", () => { byId("regions").setAttribute("aria-pressed", byId("stage").classList.toggle("all")); uncover(); });
}

function showExamples(names) {
  byId("examples").hidden = !names.length;
  if (names.length) byId("drop-text").textContent = "Drop an image here, paste one, choose one, or take an example.";
  names.forEach(([id, name], row) => {
    const button = element("button", { type: "button", "aria-pressed": "false", "aria-label": `Example ${row + 1}`, title: name, onclick: () => takeServed(id, name, button) }, element("img", { src: `/v1/pictures/${id}`, alt: "" }));
    byId("examples").append(button);
  });
}

// The task and its fields

function offered() { return Object.keys(state.forms).filter((task) => capable(task).length); }

function showTasks() {
  const tabs = offered().map((task) => element("button", {
    type: "button", role: "tab", id: `tab-${task}`, "aria-controls": "panel", onclick: () => choose(task),
    onkeydown: (event) => {
      const all = offered(), at = all.indexOf(task);
      const next = { ArrowRight: at + 1, ArrowLeft: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      choose(all[next % all.length]);
      byId(`tab-${state.task}`).focus();
    },
  }, state.forms[task].name));
  byId("tasks").replaceChildren(...tabs);
}

function showUnserved() {
  const rest = Object.values(state.forms).filter(({ task }) => !capable(task).length);
  const [summary, list] = byId("unserved").children;
  byId("unserved").hidden = !rest.length;
  summary.textContent = `Not served here: ${rest.map(({ name }) => name).join(", ")}`;
  list.replaceChildren(...rest.flatMap(({ name, help, serve }) => [element("dt", {}, element("b", {}, name), ` ${help}`), element("dd", {}, ...serve.map((line) => element("pre", { tabindex: 0 }, line)))]));
}

function field({ name, label, type = "text", hint, wanted, value, min, max }) {
  const id = `field-${name}`;
  if (type === "checkbox") return element("label", { class: "check" }, element("input", { id, name, type }), label);
  const input = type === "lines" ? element("textarea", { id, name, rows: 3, required: wanted }) : element("input", { id, name, type, min, max, value, placeholder: hint, required: wanted, maxlength: 500, autocomplete: "off" });
  return element("label", { class: "field" }, element("span", {}, label), input);
}

// Texts of the training data as buttons, each of which fills the field and asks.
function chips(task) {
  const wanted = state.forms[task].fields.filter((one) => one.wanted);
  const texts = capable(task).find(({ examples }) => examples.length)?.examples ?? [];
  if (wanted.length !== 1 || wanted[0].type === "lines" || !texts.length) return [];
  const fill = (text) => { byId(`field-${wanted[0].name}`).value = text; if (state.picture || !state.forms[task].pictured) ask(); };
  return [element("p", { class: "chips", role: "group", "aria-label": "Examples of texts" }, ...texts.map((text) => element("button", { type: "button", onclick: () => fill(text) }, text)))];
}

function choose(task, values = {}) {
  state.task = task;
  for (const tab of byId("tasks").children) {
    const chosen = tab.id === `tab-${task}`;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
  byId("panel").setAttribute("aria-labelledby", `tab-${task}`);
  const { fields, pictured, name } = state.forms[task];
  const more = fields.filter((one) => one.more);
  const plain = fields.filter((one) => !one.more);
  byId("fields").replaceChildren(...plain.map(field));
  byId("fields").firstChild?.after(...chips(task));
  if (more.length) byId("fields").append(element("details", {}, element("summary", {}, "More settings"), ...more.map(field)));
  for (const [key, value] of Object.entries(values)) {
    const input = byId(`field-${key}`);
    if (!input) continue;
    if (input.type === "checkbox") input.checked = value === "true"; else input.value = [value].flat().join("\n");
    if (input.closest("details")) input.closest("details").open = true;
  }
  byId("go").textContent = name;
  byId("form").hidden = false;
  byId("picture-panel").hidden = !pictured;
  const able = capable(task);
  byId("models").hidden = able.length < 2;
  byId("models").replaceChildren(byId("models").firstElementChild, ...able.map((model) => element("label", { class: "check" }, element("input", { type: "checkbox", name: "model", value: model.name, checked: true }), `${model.name} (${model.system})`)));
  remember();
}

function missingField() { return state.forms[state.task].fields.find(({ name, wanted }) => wanted && !byId(`field-${name}`).value.trim()); }

function values() {
  const found = {};
  for (const { name, type } of state.forms[state.task].fields) {
    const input = byId(`field-${name}`);
    const value = type === "checkbox" ? (input.checked ? "true" : "") : input.value.trim();
    if (value) found[name] = type === "lines" ? value.split("\n").map((line) => line.trim()).filter(Boolean) : value;
  }
  return found;
}

function chosenModels() {
  const able = capable(state.task);
  const ticked = [...byId("models").querySelectorAll("input:checked")].map((one) => one.value);
  return able.length < 2 ? able.map((model) => model.name) : ticked;
}

// Settings live in the address, so that a link restores them.

function settings() {
  const texts = Object.entries(values()).map(([name, value]) => [name, [value].flat().join("\n")]);
  return `#${new URLSearchParams([["task", state.task], ...texts])}`;
}

function remember() { history.replaceState(null, "", settings()); }

function restore() {
  const { task, ...rest } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const all = offered();
  if (!all.length) { complain("The models of this service were trained for no task of this page."); return; }
  choose(all.includes(task) ? task : all[0], rest);
}

// Asking

async function post(task, model, asked, signal) {
  const form = new FormData();
  form.set("model", model);
  if (state.forms[task].explains) form.set("explain", "true");
  for (const [name, value] of Object.entries(asked)) for (const one of [value].flat()) form.append(name, one);
  if (state.forms[task].pictured) form.set("image", state.picture, state.picture.name || "image");
  const response = await fetch(`/v1/${task}`, { method: "POST", headers: { Accept: VIEW }, body: form, signal });
  const view = await response.json();
  if (!response.ok) {
    const wait = response.headers.get("Retry-After");
    throw new Error(wait ? `The service is busy: ${view.detail}. Try again in ${wait} s.` : `Refused: ${view.detail}.`);
  }
  return { model, view, timing: response.headers.get("Server-Timing") };
}

async function ask(event) {
  event?.preventDefault();
  const task = state.task;
  const { pictured, fields } = state.forms[task];
  const missing = missingField();
  complain("");
  if (pictured && !state.picture) { complain("Choose an image first."); byId("file").focus(); return; }
  if (missing) { complain(`${missing.label}: enter a text first.`); byId(`field-${missing.name}`).focus(); return; }
  const models = chosenModels();
  if (!models.length) { complain("Tick a model first."); return; }
  remember();
  stop();
  const { signal } = state.asking = new AbortController();
  const asked = values(), file = pictured ? state.picture : null;
  busy(true);
  say(pictured ? "The image was sent; the model is computing…" : "Searching the images…");
  const settled = await Promise.allSettled(models.map((model) => post(task, model, asked, signal)));
  const image = byId("chosen");
  if (file) await image.decode().catch(() => null);
  if (signal.aborted) return;
  busy(false);
  const failed = settled.filter((one) => one.status === "rejected").map(({ reason }) => (reason instanceof TypeError ? "The service cannot be reached; is it still running?" : reason.message));
  const answers = settled.filter((one) => one.status === "fulfilled").map((one) => one.value);
  if (failed.length) complain([...new Set(failed)].join(" "));
  if (!answers.length) return;
  const entry = { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), task, asked, answers, file: file?.name || "image", source: file && state.source, size: [image.naturalWidth || 1, image.naturalHeight || 1], thumbnail: file && thumbnail(image) };
  // The same question again, right after itself, replaces its earlier answer.
  const [newest] = state.history, key = (one) => JSON.stringify([one.task, one.asked, one.answers.map(({ model }) => model)]);
  const again = newest && key(newest) === key(entry) && state.files.get(newest.id) === (file ?? undefined);
  if (file) state.files.set(entry.id, file);
  show(entry);
  say("Done", `: ${summary(entry)}`);
  keep([entry, ...state.history.slice(again ? 1 : 0)]);
}

function busy(on) {
  byId("busy").hidden = byId("cancel").hidden = !on;
  byId("go").disabled = on;
  byId("results").setAttribute("aria-busy", on);
}

function stop() {
  state.asking?.abort();
  busy(false);
}

function cancel() {
  if (byId("cancel").hidden) return;
  stop();
  byId("go").focus();
  say("Cancelled.");
}

const summary = (entry) => entry.answers.map(({ view }) => view.summary).join(" / ");

function inWords(timing) {
  const found = Object.fromEntries([...(timing || "").matchAll(/(\w+);dur=([\d.]+)/g)].map(([, name, ms]) => [name, Math.round(ms)]));
  return "model" in found ? `${found.extraction} ms to find regions, ${found.model} ms in the model, ${found.queue} ms in the queue` : "";
}

function show(entry) {
  const first = state.forms[entry.task].fields.find((one) => one.wanted);
  const made = entry.answers.map(({ model, view, timing }) => {
    const { nodes, claim } = shown(view, entry.size, offered().some((task) => state.forms[task].pictured) && takeServed);
    const title = entry.answers.length > 1 ? element("h2", {}, model) : null;
    const words = first ? element("p", { class: "asked" }, entry.asked[first.name]?.toString()) : null;
    return { claim, box: element("div", { class: "answer" }, ...[title, words].filter(Boolean), ...nodes, element("p", { class: "note" }, inWords(timing)), ...tools(entry, model, view)) };
  });
  byId("results").replaceChildren(element("div", { class: "compare" }, ...made.map((one) => one.box)));
  made[0].claim();
  if (byId("results").getBoundingClientRect().top > 0.8 * innerHeight) byId("results").scrollIntoView({ block: "center" });
}

// Copies: the answer, the request for a terminal, the answer's JSON, a link to the settings

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no clipboard without TLS, except on this machine
    const field = element("textarea", {}, text);
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (!done) { complain(`${what} could not be copied; this browser refuses.`); return; }
  }
  say(`${what} is copied.`);
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(entry, model) {
  const fields = Object.entries({ model, ...entry.asked }).flatMap(([name, value]) => [value].flat().map((one) => `--form-string ${quoted(`${name}=${one}`)}`));
  const file = `image=@"${entry.file.replace(/(["\\])/g, "\\$1")}"`;
  // An example is no file of the user's: it is fetched first.
  const image = entry.source ? ["-s", quoted(location.origin + entry.source), "| curl -F", quoted(`image=@-;filename=${entry.file}`)] : ["-F", quoted(file)];
  return ["curl", ...(state.forms[entry.task].pictured ? image : []), ...fields, quoted(`${location.origin}/v1/${entry.task}`)].join(" ");
}

function tools(entry, model, view) {
  const { answer = view } = view;
  const json = JSON.stringify(answer, null, 1);
  const text = view.words ?? (view.verdicts.join("\n") || view.summary);
  const raw = element("pre", { tabindex: 0, hidden: true, role: "region", "aria-label": "JSON" }, json);
  const toggle = element("button", { type: "button", "aria-expanded": "false", onclick: () => { raw.hidden = !raw.hidden; toggle.setAttribute("aria-expanded", !raw.hidden); } }, "JSON");
  const [field] = Object.entries(answer).find(([, value]) => value === view.words && view.words !== undefined) ?? [];
  const asked = Object.fromEntries(state.forms[entry.task].fields.filter((one) => one.wanted).map(({ name }) => [name, entry.asked[name]]));
  const form = field && correction(entry.file, asked, field, view.words, () => { keep(state.history); say("The correction is kept in this browser; download all of them under History."); });
  const correct = form && element("button", { type: "button", onclick: () => { form.hidden = !form.hidden; if (!form.hidden) form.firstChild.focus(); } }, "Correct this");
  const button = (name, what, made) => element("button", { type: "button", onclick: () => copy(made(), what) }, name);
  return [element("p", { class: "tools" }, button("Copy", "The answer", () => text), button("Copy as curl", "The command", () => curl(entry, model)), toggle,
    button("Copy a link", "The link", () => location.origin + location.pathname + settings()), correct), form, raw].filter(Boolean);
}

// Earlier answers

function keep(entries) {
  state.history = writeHistory(entries);
  for (const id of state.files.keys()) if (!state.history.some((one) => one.id === id)) state.files.delete(id);
  byId("visit-panel").hidden = !showCount() && !state.history.length;
  byId("visit").replaceChildren(...state.history.map((entry) => {
    const text = `${state.forms[entry.task].name}: ${summary(entry)}`;
    const image = entry.thumbnail && element("img", { src: entry.thumbnail, alt: "" });
    return element("li", {}, element("button", { type: "button", onclick: () => recall(entry) }, ...[image, element("span", {}, text)].filter(Boolean)),
      element("button", { type: "button", "aria-label": `Remove ${text}`, onclick: () => { keep(state.history.filter((one) => one !== entry)); byId("visit").querySelector("button")?.focus(); } }, "×"));
  }));
}

function recall(entry) {
  stop();
  complain("");
  if (capable(entry.task).length) choose(entry.task, entry.asked);
  const file = state.files.get(entry.id);
  if (file) load(file, entry.source);
  else if (state.forms[entry.task].pictured) {
    state.picture = null;
    showPicture(entry.thumbnail, "The thumbnail of an earlier image");
    markExample(null);
  }
  show(entry);
  say(file || !state.forms[entry.task].pictured ? "An earlier answer." : "An earlier answer, on a thumbnail of its image; choose the image again to ask about it.");
  window.scrollTo({ top: 0 });
}

// What the models are

function about(model) {
  const facts = [["System", model.system], ["Knows", model.knows], ["Can", model.tasks.map((task) => state.forms[task].name).join(", ") || "no task of this page"], ["Version", model.version], ["Licence", model.licence || "not stated"], ["Recipe", model.recipe || "imported"], ["Trained", model.trained], ["Scores", model.scores], ["Weights", `${(model.parameters / 1e6).toFixed(1)} million`], ["Vocabulary", `${model.vocabulary} pieces of words`], ["Detector", model.detector], ["Classes", model.sees.slice(0, 40).join(", ") + (model.sees.length > 40 ? `, and ${model.sees.length - 40} more` : "")]];
  return [element("h3", {}, model.name), element("table", { class: "facts" }, element("tbody", {}, ...facts.filter(([, value]) => value).map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)))))];
}

async function start() {
  listenForTheme();
  listenForPictures();
  byId("form").addEventListener("submit", ask);
  byId("form").addEventListener("change", remember);
  byId("cancel").addEventListener("click", cancel);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !byId("drawer").open) cancel(); });
  byId("clear").addEventListener("click", () => { forget(); keep([]); });
  byId("download").addEventListener("click", download);
  byId("open-drawer").addEventListener("click", () => byId("drawer").showModal());
  byId("close-drawer").addEventListener("click", () => byId("drawer").close());
  byId("drawer").addEventListener("click", (event) => { if (event.target === byId("drawer")) byId("drawer").close(); });
  const found = await Promise.all([fetch("/v1/models"), fetch("/v1/forms")]).catch(() => [{}]);
  if (!found.every((one) => one.ok)) { complain("The list of models could not be loaded; is the service still running? Reload the page."); return; }
  const [{ models, examples }, forms] = await Promise.all(found.map((one) => one.json()));
  state.forms = Object.fromEntries(forms.map((one) => [one.task, one]));
  state.models = models;
  const said = (name) => [...new Set(models.map((model) => model[name]).filter(Boolean))];
  document.title = byId("title").textContent = said("title").join(" · ") || "Diptych";
  byId("knows").textContent = said("about").join(" ") || `It knows ${said("knows").join("; ")}.`;
  byId("about").replaceChildren(...models.flatMap(about));
  showTasks();
  showUnserved();
  showExamples(examples);
  restore();
  keep(readHistory().filter((one) => one.task in state.forms));
  window.addEventListener("hashchange", restore);
}

start();
