// Corrected answers, kept in this browser: lines of JSON that `diptych check`, `extract` and training read.
import { byId, element } from "/view.js";

const KEY = "diptych-corrections-1";
let kept = null; // used if storage is switched off

function read() {
  try { kept ??= JSON.parse(localStorage.getItem(KEY)); } catch { /* damaged, or storage is switched off */ }
  return Array.isArray(kept) ? kept.filter((line) => typeof line?.image === "string") : [];
}

function write(lines) {
  kept = lines;
  try { localStorage.setItem(KEY, JSON.stringify(lines)); } catch { /* kept until the page is left */ }
  showCount();
}

// Show how many corrections are kept. Return the count.
export function showCount() {
  const { length } = read();
  byId("download").hidden = !length;
  byId("download").textContent = `Download ${length === 1 ? "1 correction" : `${length} corrections`}`;
  return length;
}

export function forget() { write([]); }

export function download() {
  const lines = read().map((line) => `${JSON.stringify(line)}\n`);
  const address = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  element("a", { href: address, download: "corrections.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

// A form in which the user corrects an answer. `image`: the name of its file. `asked`: the texts of the question.
// `field`: the answer's name, such as caption. A later correction of the same question replaces the first.
export function correction(image, asked, field, text, after) {
  const input = element("input", { value: text, maxlength: 500, "aria-label": "Correct answer", autocomplete: "off" });
  const save = (event) => {
    event.preventDefault();
    const right = input.value.trim();
    if (!right) { input.focus(); return; }
    const same = (line) => line.image === image && Object.entries(asked).every(([name, value]) => line[name] === value) && `${field}s` in line;
    write([...read().filter((line) => !same(line)), { image, ...asked, [`${field}s`]: [right] }]);
    form.hidden = true;
    after();
  };
  const form = element("form", { class: "correction", hidden: true, onsubmit: save }, input, element("button", { type: "submit" }, "Save"));
  return form;
}
