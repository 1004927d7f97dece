// Earlier answers, kept in this browser: the newest ENTRIES, each with a small thumbnail. Images themselves are not kept.

const KEY = "diptych-history-1";
const ENTRIES = 24;
const SIDE = 320; // pixels of a thumbnail's longer side

export function readHistory() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY));
    return Array.isArray(kept) ? kept.filter((one) => one?.asked && one.answers?.every(({ view }) => view.tables && view.verdicts)).slice(0, ENTRIES) : [];
  } catch {
    return []; // damaged, or storage is switched off
  }
}

// Keep the entries, newest first, and return those that fitted.
export function writeHistory(entries) {
  for (let kept = entries.slice(0, ENTRIES); kept.length; kept = kept.slice(0, -1)) {
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
      return kept;
    } catch (error) {
      if (error.name !== "QuotaExceededError") return kept; // storage is switched off: kept until the page is left
    }
  }
  try { localStorage.removeItem(KEY); } catch { /* storage is switched off */ }
  return [];
}

// A JPEG of the image as a data URL; null if the browser cannot show the image.
export function thumbnail(image) {
  if (!image.naturalWidth) return null;
  const scale = Math.min(1, SIDE / Math.max(image.naturalWidth, image.naturalHeight));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight].map((side) => Math.max(1, Math.round(side * scale)));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.8);
}
