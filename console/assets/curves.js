// A live curve of the last seconds, with bands of faults under it, its newest values in words and in a table.
import { h, svg, set, text, clock } from "./dom.js";

const SAMPLES = 900, HEIGHT = 150, LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 26, DASHES = [[], [7, 3], [2, 3], [8, 3, 2, 3]];
const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const STEPS_S = [1, 5, 15, 30, 60, 120, 300, 900];
const short = (value) => (value === null ? "–" : compact.format(value));

// Append a figure to `parent`. `series` is [{label, colour}], with a colour token without its dashes: "c0". Times are in ms.
export function curve(parent, { title, unit, series, seconds }) {
  const times = [], columns = series.map(() => []), span = seconds * 1000;
  let bands = [];
  const newest = () => times.at(-1) ?? Date.now();
  const shownAt = (place) => columns.map((column) => column[place] ?? null);

  const numbers = series.map(() => h("b")), cells = series.map(() => h("td", { class: "n" })), when = h("caption");
  const dash = (colour, place) => svg("svg", { width: 22, height: 12, "aria-hidden": "true" }, svg("path", { d: "M0,6H22", stroke: `var(--${colour})`, "stroke-width": 2.5, "stroke-dasharray": DASHES[place % 4].join(" ") }));
  const legend = h("div", { class: "legend" }, series.map(({ label, colour }, place) => h("span", null, dash(colour, place), label, numbers[place])));
  const head = h("thead", null, h("tr", null, h("th", { scope: "col" }, "curve"), h("th", { scope: "col", class: "n" }, unit)));
  const drawing = h("div", { class: "drawing", role: "img", "aria-label": `${title}, ${unit}: no values yet.` });
  const figure = h("figure", { class: "curve" }, h("figcaption", null, `${title} `, h("small", null, unit)), legend, drawing,
    h("details", null, h("summary", null, `Newest values: ${title}`), h("table", null, when, head, h("tbody", null, series.map(({ label }, place) => h("tr", null, h("th", { scope: "row" }, label), cells[place]))))));
  parent.append(figure);

  const inView = () => bands.filter((band) => band.from_ms <= newest() && (band.to_ms ?? newest()) >= newest() - span);
  const canvas = drawing.appendChild(h("canvas")), ctx = canvas.getContext("2d");
  let width = 0, pointed = null;
  const xOf = (ms) => LEFT + (1 - (newest() - ms) / span) * (width - LEFT - RIGHT);

  // A step of an axis, 1, 2 or 5 times a power of ten, of which `most` are in `range`.
  function stepOf(range, most) {
    const power = 10 ** Math.floor(Math.log10(range / most));
    return power * [1, 2, 5, 10].find((each) => each * power * most >= range);
  }
  function line(x1, y1, x2, y2) { ctx.beginPath(); ctx.moveTo(x1, y1); ctx.lineTo(x2, y2); ctx.stroke(); }

  function paint() {
    const scale = devicePixelRatio, since = newest() - span, right = width - RIGHT, bottom = HEIGHT - BOTTOM, values = columns.flat().filter((value) => value !== null);
    const high = Math.max(0, ...values) * 1.1 || 1, low = Math.min(0, ...values), yOf = (value) => bottom - ((value - low) / (high - low)) * (bottom - TOP);
    Object.assign(canvas, { width: width * scale, height: HEIGHT * scale });
    ctx.scale(scale, scale);
    Object.assign(ctx, { font: "11px system-ui, sans-serif", fillStyle: token("soft"), strokeStyle: token("line"), textAlign: "right", textBaseline: "middle" });
    const step = stepOf(high - low, (bottom - TOP) / 24);
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) { line(LEFT, yOf(value), right, yOf(value)); ctx.fillText(short(value), LEFT - 6, yOf(value)); }
    ctx.textAlign = "center";
    const every = 1000 * (STEPS_S.find((each) => (each * 1000 * (right - LEFT)) / span >= 90) ?? 1800);
    for (let at = Math.ceil(since / every) * every; at <= newest(); at += every) { line(xOf(at), TOP, xOf(at), bottom); if (xOf(at) < right - 20) ctx.fillText(clock(at), xOf(at), HEIGHT - 12); }
    ctx.textAlign = "left";
    for (const { from_ms, to_ms, about, colour = "f0" } of inView()) {
      const x = Math.max(xOf(from_ms), LEFT), wide = Math.min(xOf(to_ms ?? newest()), right) - x;
      Object.assign(ctx, { fillStyle: token(colour), globalAlpha: Number(token("shade")) });
      ctx.fillRect(x, TOP, Math.max(wide, 2), bottom - TOP);
      Object.assign(ctx, { fillStyle: token("ink"), globalAlpha: 1 });
      if (ctx.measureText(about).width + 8 < wide) ctx.fillText(about, x + 4, TOP + 9);
    }
    if (pointed !== null) { ctx.strokeStyle = token("faint"); line(xOf(times[pointed]), TOP, xOf(times[pointed]), bottom); }
    ctx.beginPath();
    ctx.rect(LEFT, 0, right - LEFT, HEIGHT);
    ctx.clip();
    columns.forEach((column, place) => {
      Object.assign(ctx, { strokeStyle: token(series[place].colour), lineWidth: 2, lineJoin: "round" });
      ctx.setLineDash(DASHES[place % 4]);
      ctx.beginPath();
      column.forEach((value, at) => { if (value !== null) ctx[at && column[at - 1] !== null ? "lineTo" : "moveTo"](xOf(times[at]), yOf(value)); });
      ctx.stroke();
    });
    shownAt(pointed ?? times.length - 1).forEach((value, place) => text(numbers[place], short(value)));
  }
  let painting = 0;
  const repaint = () => { painting ||= requestAnimationFrame(() => { painting = 0; if (width) paint(); }); };
  canvas.onmousemove = ({ offsetX }) => { const found = times.findIndex((at) => xOf(at) >= offsetX); pointed = found < 0 ? null : found; repaint(); };
  canvas.onmouseleave = () => { pointed = null; repaint(); };
  const resize = () => { width = drawing.clientWidth; Object.assign(canvas.style, { width: `${width}px`, height: `${HEIGHT}px`, display: "block" }); repaint(); };
  const sizes = new ResizeObserver(resize), themes = new MutationObserver(repaint), dark = matchMedia("(prefers-color-scheme: dark)");
  sizes.observe(drawing);
  themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  dark.addEventListener("change", repaint);

  const describe = () => {
    const faults = [...new Set(inView().map((band) => band.about))], values = shownAt(times.length - 1);
    const words = series.map(({ label }, place) => `${label} ${values[place] === null ? "unknown" : short(values[place])}`).join(", ");
    set(drawing, { "aria-label": `${title}, ${unit}, at ${clock(newest())}: ${words}.${faults.length ? ` Faults shown: ${faults.join(", ")}.` : ""}` });
    values.forEach((value, place) => text(cells[place], short(value)));
    text(when, `At ${clock(newest())}`);
  };
  // Add a sample: one number per series, null where nobody looked. A sample that comes early replaces the last one, but no gap.
  const push = (time_ms, values) => {
    const isAlike = columns.every((column, place) => (column.at(-1) === null) === (values[place] === null));
    const isEarly = isAlike && times.length > 1 && times.at(-1) - times.at(-2) < span / SAMPLES, isFull = times.length >= SAMPLES || times[0] < time_ms - span;
    for (const [place, column] of [times, ...columns].entries()) {
      if (isEarly) column.pop(); else if (isFull) column.shift();
      column.push(place ? values[place - 1] : time_ms);
    }
    repaint();
    describe();
  };
  // Replace the bands [{from_ms, to_ms, about, colour}]; to_ms null: it goes on; colour a token, "f0" by default.
  const shade = (next) => { bands = next; repaint(); describe(); };
  const destroy = () => { sizes.disconnect(); themes.disconnect(); dark.removeEventListener("change", repaint); cancelAnimationFrame(painting); figure.remove(); };
  return { push, shade, destroy };
}
