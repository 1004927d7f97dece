// "Try it" of /docs: send the form of an operation to this service and show the answer. The forms are made from the OpenAPI document.

const READ = { integer: Number, number: Number, boolean: (text) => text === "true", string: (text) => text, array: (text) => text.split("\n").map((line) => line.trim()).filter(Boolean) };

function request(form) {
  const { method, body } = form.dataset;
  let { path } = form.dataset;
  const fields = new FormData(), values = {};
  for (const input of form.querySelectorAll("[name]")) {
    if (input.type === "file") { if (input.files[0]) fields.set(input.name, input.files[0]); continue; }
    if (input.value === "") continue;
    const value = READ[input.dataset.type](input.value);
    if (input.dataset.in === "path") path = path.replace(`{${input.name}}`, encodeURIComponent(value));
    values[input.name] = value;
    for (const one of [value].flat()) fields.append(input.name, one);
  }
  if (!body) return [path, { method }];
  return [path, body === "form" ? { method, body: fields } : { method, body: JSON.stringify(values), headers: { "Content-Type": "application/json" } }];
}

async function send(event) {
  event.preventDefault();
  const form = event.target, [status, answer, image] = [form.querySelector("[role=status]"), form.querySelector("pre"), form.querySelector("img")];
  answer.hidden = image.hidden = true;
  status.textContent = "Sent…";
  try {
    const begun = performance.now(), response = await fetch(...request(form)), type = response.headers.get("Content-Type") || "";
    const content = await response.blob();
    status.textContent = `${response.status} ${response.statusText}, ${type}, ${Math.round(performance.now() - begun)} ms`;
    if (type.startsWith("image/")) {
      URL.revokeObjectURL(image.src);
      image.src = URL.createObjectURL(content);
      image.hidden = false;
      return;
    }
    const text = await content.text();
    answer.textContent = type.includes("json") ? JSON.stringify(JSON.parse(text), null, 1) : text;
    answer.hidden = false;
  } catch (error) {
    status.textContent = `No answer: ${error.message}`;
  }
}

for (const form of document.querySelectorAll("form.try")) form.addEventListener("submit", send);
