"use strict";
// Search and filter. Without it the page shows everything, so nothing is hidden from who runs no scripts.
(() => {
  const form = document.getElementById("search");
  if (!form) return;
  const names = JSON.parse(document.getElementById("names").textContent).map((name) => name.toLowerCase());
  const rows = Array.from(document.querySelectorAll("[data-verdict]"), (row) => ({ row, verdict: row.dataset.verdict, places: row.dataset.nodes, text: null }));
  const query = document.getElementById("query");
  const boxes = Array.from(form.querySelectorAll("input[type=checkbox]"));
  const found = document.getElementById("found");
  // Whether an entry is about one of the nodes that are looked for: "3-2,4" are the places 3 to 5 and 9 in the names.
  const about = (places, wanted) => {
    let at = 0;
    return places === "*" || (places !== "" && wanted.size > 0 && places.split(",").some((part) => {
      const [step, more = 0] = part.split("-").map(Number);
      at += step;
      for (const end = at + more; ; at++) {
        if (wanted.has(at)) return true;
        if (at >= end) return false;
      }
    }));
  };
  const show = () => {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean)
      .map((word) => ({ word, nodes: new Set(names.flatMap((name, place) => name.includes(word) ? [place] : [])) }));
    const hidden = new Set(boxes.filter((box) => !box.checked).map((box) => box.value));
    let count = 0;
    for (const each of rows) {
      let good = !hidden.has(each.verdict);
      if (good && words.length) {
        each.text ??= each.row.textContent.toLowerCase();
        good = words.every(({ word, nodes }) => each.text.includes(word) || about(each.places, nodes));
      }
      each.row.hidden = !good;
      count += good;
    }
    found.textContent = words.length || hidden.size ? `${count} of ${rows.length} entries` : "";
  };
  let waiting = 0;
  const soon = () => { clearTimeout(waiting); waiting = setTimeout(show, 80); };
  query.addEventListener("input", soon);
  for (const box of boxes) box.addEventListener("change", soon);
  form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
  form.addEventListener("reset", soon);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== query) { event.preventDefault(); query.focus(); }
    if (event.key === "Escape" && document.activeElement === query) { query.value = ""; show(); }
  });
  form.hidden = false;
})();
