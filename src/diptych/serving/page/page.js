// The page: an image, a task and its fields; the models' answers; the requests of this visit; a link to the settings.
// It knows no task by name: /v1/forms lists the fields of each task, and answers arrive arranged for display (PageView).
import { element, shown } from "/view.js";

const VIEW = "application/vnd.diptych.page+json";

const byId = (name) => document.getElementById(name);
const state = { forms: {}, models: [], task: null, picture: null, address: null, asking: null };

function say(text) { byId("status").textContent = text; }
function complain(text) { byId("error").textContent = text; if (text) say(""); }

// The picture

function take(file) {
  if (!file) return;
  if (file.type && !file.type.startsWith("image/")) { complain(`“${file.name}” is not a picture; choose a JPEG, PNG or WebP.`); return; }
  complain("");
  state.picture = file;
  state.address = URL.createObjectURL(file);
  const chosen = byId("chosen");
  chosen.src = state.address;
  chosen.alt = `The chosen picture, ${file.name || "pasted"}`;
  chosen.hidden = false;
  say("The picture is loaded.");
}

async function takeExample(name, address) {
  const found = await fetch(address);
  if (!found.ok) { complain("The example could not be loaded."); return; }
  take(new File([await found.blob()], name));
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
  });
}

function showExamples(names) {
  const strip = byId("examples");
  strip.hidden = !names.length;
  names.forEach((name, row) => {
    const address = `/v1/pictures/${name}`;
    strip.append(element("button", { type: "button", "aria-label": `Example ${row + 1}`, onclick: () => takeExample(`example-${row + 1}`, address) }, element("img", { src: address, alt: "" })));
  });
}

// The task and its fields

function offered() { return Object.keys(state.forms).filter((task) => state.models.some((model) => model.tasks.includes(task))); }

function showTasks() {
  const tabs = offered().map((task) => element("button", {
    type: "button", role: "tab", id: `tab-${task}`, "aria-controls": "panel", onclick: () => choose(task),
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const all = offered();
      choose(all[(all.indexOf(task) + step + all.length) % all.length]);
      byId(`tab-${state.task}`).focus();
    },
  }, state.forms[task].name));
  byId("tasks").replaceChildren(...tabs);
}

function field({ name, label, type = "text", hint, wanted, value, min, max }) {
  const id = `field-${name}`;
  if (type === "checkbox") return element("label", { class: "check" }, element("input", { id, name, type }), label);
  const input = type === "lines" ? element("textarea", { id, name, rows: 3, required: wanted }) : element("input", { id, name, type, min, max, value, placeholder: hint, required: wanted, maxlength: 500, autocomplete: "off" });
  return element("label", { class: "field" }, element("span", {}, label), input);
}

function choose(task, values = {}) {
  state.task = task;
  for (const tab of byId("tasks").children) {
    const chosen = tab.id === `tab-${task}`;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
  byId("panel").setAttribute("aria-labelledby", `tab-${task}`);
  const { fields, pictured } = state.forms[task];
  const more = fields.filter((one) => one.more);
  byId("fields").replaceChildren(...fields.filter((one) => !one.more).map(field));
  if (more.length) byId("fields").append(element("details", {}, element("summary", {}, "More settings"), ...more.map(field)));
  for (const [name, value] of Object.entries(values)) {
    const input = byId(`field-${name}`);
    if (!input) continue;
    if (input.type === "checkbox") input.checked = value === "true"; else input.value = value;
    if (input.closest("details")) input.closest("details").open = true;
  }
  byId("picture-panel").hidden = !pictured;
  const able = state.models.filter((model) => model.tasks.includes(task));
  byId("models").hidden = able.length < 2;
  byId("models").replaceChildren(element("legend", {}, "Models, side by side"), ...able.map((model) => element("label", { class: "check" }, element("input", { type: "checkbox", name: "model", value: model.name, checked: true }), `${model.name} (${model.system})`)));
  remember();
}

function values() {
  const found = {};
  for (const { name, type } of state.forms[state.task].fields) {
    const input = byId(`field-${name}`);
    const value = type === "checkbox" ? (input.checked ? "true" : "") : input.value.trim();
    if (value) found[name] = value;
  }
  return found;
}

function chosenModels() {
  const able = state.models.filter((model) => model.tasks.includes(state.task));
  const ticked = [...byId("models").querySelectorAll("input:checked")].map((one) => one.value);
  return able.length < 2 ? able.map((model) => model.name) : ticked;
}

// Settings live in the address, so that a link restores them.

function remember() { history.replaceState(null, "", `#${new URLSearchParams({ task: state.task, ...values() })}`); }

function restore() {
  const { task, ...rest } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const all = offered();
  if (!all.length) { complain("The models of this service were trained for no task of this page."); return; }
  choose(all.includes(task) ? task : all[0], rest);
}

async function copyLink() {
  remember();
  try { await navigator.clipboard.writeText(location.href); say("The link is copied."); } catch { say(`The link: ${location.href}`); }
}

// Asking

async function post(task, model, asked) {
  const form = new FormData();
  form.set("model", model);
  if (state.forms[task].explains) form.set("explain", "true");
  for (const [name, value] of Object.entries(asked)) for (const one of [value].flat()) form.append(name, one);
  if (state.forms[task].pictured) form.set("image", state.picture, state.picture.name || "picture");
  const options = { method: "POST", headers: { Accept: VIEW }, body: form, signal: state.asking.signal };
  const answer = await fetch(`/v1/${task}`, options);
  const told = await answer.json();
  if (!answer.ok) {
    const wait = answer.headers.get("Retry-After");
    throw new Error(wait ? `The service is busy: ${told.detail}. Try again in ${wait} s.` : `Refused: ${told.detail}.`);
  }
  return { told, timing: answer.headers.get("Server-Timing") };
}

function inWords(timing) {
  const found = Object.fromEntries([...(timing || "").matchAll(/(\w+);dur=([\d.]+)/g)].map(([, name, ms]) => [name, Math.round(ms)]));
  return "model" in found ? `${found.extraction} ms to find regions, ${found.model} ms in the model, ${found.queue} ms in the queue` : "";
}

async function ask(event) {
  event.preventDefault();
  const task = state.task;
  const { pictured, fields } = state.forms[task];
  const missing = fields.find(({ name, wanted }) => wanted && !byId(`field-${name}`).value.trim());
  complain("");
  if (pictured && !state.picture) { complain("Choose a picture first."); byId("file").focus(); return; }
  if (missing) { complain(`${missing.label}: enter a text first.`); byId(`field-${missing.name}`).focus(); return; }
  const models = chosenModels();
  if (!models.length) { complain("Tick a model first."); return; }
  remember();
  const asked = values();
  for (const { name, type } of fields) if (type === "lines") asked[name] = (asked[name] || "").split("\n").map((line) => line.trim()).filter(Boolean);
  state.asking?.abort();
  state.asking = new AbortController();
  byId("go").disabled = true;
  say(pictured ? "The picture was sent; the model is computing…" : "Searching the pictures…");
  const picture = state.address;
  const answers = await Promise.allSettled(models.map((model) => post(task, model, asked)));
  byId("go").disabled = false;
  await show(task, models, asked, picture, answers);
}

async function show(task, models, asked, picture, answers) {
  const failed = answers.filter((one) => one.status === "rejected");
  if (failed.length) complain([...new Set(failed.map((one) => one.reason instanceof TypeError ? "The service cannot be reached; is it still running?" : one.reason.message))].join(" "));
  const good = answers.map((one, row) => [models[row], one]).filter(([, one]) => one.status === "fulfilled");
  if (!good.length) return;
  const first = state.forms[task].fields.find((one) => one.wanted);
  const words = first && asked[first.name];
  const said = () => (words ? [element("p", { class: "asked" }, words)] : []);
  const made = good.map(([model, { value }]) => {
    const view = shown(value.told, picture);
    const title = models.length > 1 ? [element("h3", {}, model)] : [];
    return { ...view, box: element("div", { class: "answer" }, ...title, ...said(), ...view.nodes, element("p", { class: "note" }, inWords(value.timing))) };
  });
  byId("results").replaceChildren(element("h2", {}, "Result"), element("div", { class: "compare" }, ...made.map((one) => one.box)));
  byId("results").scrollIntoView({ block: "nearest" });
  await Promise.all(made.map((one) => one.ready));
  say(`Done: ${made.map((one) => one.summary).join(" / ")}`);
  keep(task, picture, made.map((one) => one.summary).join(" / "), [...byId("results").childNodes]);
}

function keep(task, picture, line, nodes) {
  byId("visit-panel").hidden = false;
  const inside = [state.forms[task].pictured ? element("img", { src: picture, alt: "" }) : null, element("span", {}, `${state.forms[task].name}: ${line}`)];
  byId("visit").prepend(element("li", {}, element("button", { type: "button", onclick: () => { byId("results").replaceChildren(...nodes); byId("results").scrollIntoView({ block: "nearest" }); } }, ...inside)));
}

// What the models are

function about(model) {
  const facts = [["System", model.system], ["Knows", model.knows], ["Can", model.tasks.map((task) => state.forms[task].name).join(", ") || "no task of this page"], ["Recipe", model.recipe || "imported"], ["Trained", model.trained], ["Scores", model.scores], ["Weights", `${(model.parameters / 1e6).toFixed(1)} million`], ["Vocabulary", `${model.vocabulary} pieces of words`], ["Detector", model.detector], ["Classes", model.sees.slice(0, 40).join(", ") + (model.sees.length > 40 ? `, and ${model.sees.length - 40} more` : "")]];
  return [element("h3", {}, model.name), element("table", { class: "facts" }, element("tbody", {}, ...facts.filter(([, value]) => value).map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)))))];
}

async function start() {
  listenForPictures();
  byId("form").addEventListener("submit", ask);
  byId("form").addEventListener("change", remember);
  byId("link").addEventListener("click", copyLink);
  const found = await Promise.all([fetch("/v1/models"), fetch("/v1/forms")]);
  if (!found.every((one) => one.ok)) { complain("The list of models could not be loaded; reload the page."); return; }
  const [{ models, examples }, forms] = await Promise.all(found.map((one) => one.json()));
  state.forms = Object.fromEntries(forms.map((one) => [one.task, one]));
  state.models = models;
  byId("knows").textContent = `It knows ${[...new Set(models.map((model) => model.knows))].join("; ")}.`;
  byId("about").replaceChildren(...models.flatMap(about));
  showTasks();
  showExamples(examples);
  restore();
  window.addEventListener("hashchange", restore);
}

start();
