const grid = document.querySelector("#pictures .grid"), cards = [...grid.children];
const filter = document.querySelector("#filter"), order = document.querySelector("#order");
filter.addEventListener("input", () => {
  for (const card of cards) card.hidden = !card.textContent.toLowerCase().includes(filter.value.toLowerCase());
});
order.addEventListener("change", () => {
  grid.append(...cards.sort((a, b) => order.value * (a.dataset.worth - b.dataset.worth)));
});
