// A long list of which only the rows in view are in the document, each as high as the CSS variable --row says. Slices are loaded
// as they come into view. Focus and scroll position stay with their row while rows come, go and change.
import { h, keyed, set, text, plural } from "./dom.js";

const SLICE = 200, SPARE = 8;

// `columns`: [{title, width, sort, n}]; a click on a head calls `onSort` with "NAME" or "-NAME", and `sort()` returns the present
// one. `load(from, limit)` resolves with {total, rows}, `keyOf(row)` names a row, `cells(row)` fills its columns.
export function windowed(label, noun, columns, { load, keyOf, cells, sort = () => "", onSort = null }) {
  let slices = new Map(), total = null, active = null, turn = 0, drawing = 0, height = 1;
  const later = () => { drawing ||= requestAnimationFrame(draw); };
  const heads = columns.map(({ title, sort: name, n }) => h("div", { role: "columnheader", class: n && "n" },
    name && onSort ? h("button", { class: "quiet", onclick: () => { onSort(sort() === name ? `-${name}` : name); reload(true); } }, title, h("span", { "aria-hidden": "true" })) : title));
  const head = h("div", { role: "rowgroup", class: "heads" }, h("div", { role: "row", "aria-rowindex": "1" }, heads));
  const body = h("div", { role: "rowgroup", onfocusin: ({ target }) => { const { place } = target.closest("[data-row]"); active = { place, key: keyAt(place) }; } });
  const box = h("div", { class: "rows", role: "table", "aria-label": label, tabindex: "0", onscroll: later, onkeydown: keys }, head, body);
  const note = h("p", { class: "note rows-note" }, "Loading …");
  box.style.setProperty("--columns", columns.map(({ width }) => width).join(" "));
  new ResizeObserver(later).observe(box);

  const rowAt = (place) => slices.get(Math.floor(place / SLICE))?.rows[place % SLICE];
  const keyAt = (place) => (rowAt(place) ? keyOf(rowAt(place)) : `#${place}`);
  const nodeAt = (place) => [...body.children].find((node) => node.place === place);

  function need(number) {
    if (!slices.has(number)) slices.set(number, { rows: [], turn: -1, busy: false });
    const slice = slices.get(number), asked = turn, from = number * SLICE;
    if (slice.busy || slice.turn === turn) return;
    slice.busy = true;
    load(from, SLICE).then(({ total: found, rows }) => {
      if (slices.get(number) !== slice) return;
      const moved = body.contains(document.activeElement) ? rows.findIndex((row) => keyOf(row) === active.key) + from - active.place : 0;
      slice.rows = rows;
      total = found;
      text(note, total ? plural(total, noun) : `No ${noun} matches.`);
      if (moved && moved + active.place >= from) { active.place += moved; draw(); box.scrollTop += moved * height; }
    }).catch((error) => { if (slices.get(number) === slice) text(note, error.message); }).finally(() => { Object.assign(slice, { busy: false, turn: asked }); later(); });
  }

  function draw() {
    drawing = 0;
    height = parseFloat(getComputedStyle(box).getPropertyValue("--row"));
    const first = Math.floor(box.scrollTop / height) - SPARE, end = Math.ceil((box.scrollTop + box.clientHeight) / height) + SPARE;
    const shown = [], had = body.contains(document.activeElement);
    for (let place = Math.max(0, first); place < Math.min(total ?? 1, end); place++) { need(Math.floor(place / SLICE)); if (total) shown.push(place); }
    if (total === 0) need(0);
    if (had && active.place < total && !shown.includes(active.place)) shown[active.place < first ? "unshift" : "push"](active.place);
    body.style.height = `${(total ?? 0) * height}px`;
    set(box, { "aria-rowcount": (total ?? 0) + 1, "aria-busy": total === null ? "true" : null });
    heads.forEach((each, at) => set(each, { "aria-sort": !columns[at].sort ? null : sort() === columns[at].sort ? "ascending" : sort() === `-${columns[at].sort}` ? "descending" : null }));
    keyed(body, shown, keyAt, () => h("div", { role: "row", class: "row", "data-row": true, tabindex: "-1" }), fill);
    if (had && !body.contains(document.activeElement)) nodeAt(active.place)?.focus({ preventScroll: true });
  }

  function fill(node, place) {
    const row = rowAt(place), written = row ? JSON.stringify(row) : "";
    set(node, { "aria-rowindex": place + 2 });
    Object.assign(node, { place }).style.top = `${place * height}px`;
    if (node.written === written) return;
    if (node.written) { node.classList.add("fresh"); setTimeout(() => node.classList.remove("fresh"), 1300); }
    node.written = written;
    node.replaceChildren(...(row ? cells(row) : columns.map((_, at) => (at ? "" : "…"))).map((cell, at) => h("div", { role: "cell", class: columns[at].n && "n", "data-of": columns[at].title }, cell)));
    for (const cell of node.children) if (!cell.querySelector("[title]")) cell.title = cell.textContent; // it may be cut
  }

  function go(place) {
    place = Math.max(0, Math.min(total - 1, place));
    box.scrollTop = Math.min(place * height, Math.max(box.scrollTop, (place + 1) * height + head.offsetHeight - box.clientHeight));
    active = { place, key: keyAt(place) };
    draw();
    nodeAt(place)?.focus({ preventScroll: true });
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !total || head.contains(event.target)) return;
    const page = Math.max(1, Math.floor((box.clientHeight - head.offsetHeight) / height) - 1), at = body.contains(event.target) ? active.place : Math.ceil(box.scrollTop / height) - 1;
    const to = { j: at + 1, ArrowDown: at + 1, k: at - 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: total - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the frame of the page knows only the rows in the document
    go(to);
  }

  // Read again what is in view; `anew`: other filters or another order, from the top.
  function reload(anew = false) {
    turn++;
    if (anew) { slices = new Map([[0, { rows: slices.get(0)?.rows ?? [], turn: -1, busy: false }]]); box.scrollTop = 0; }
    later();
  }
  const redraw = () => { for (const node of body.children) node.written = null; later(); };
  return { node: [box, note], reload, redraw };
}
