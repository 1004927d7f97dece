// Light or dark, kept in this browser.
import { byId } from "/view.js";

export function listenForTheme() {
  const root = document.documentElement, key = "diptych-theme";
  const set = (theme) => { if (theme === "light" || theme === "dark") root.dataset.theme = theme; };
  try { set(localStorage.getItem(key)); } catch { /* storage is switched off */ }
  byId("theme").addEventListener("click", () => {
    const dark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    set(dark ? "light" : "dark");
    try { localStorage.setItem(key, root.dataset.theme); } catch { /* kept until the page is left */ }
  });
}
