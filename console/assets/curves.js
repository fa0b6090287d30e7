// A live curve of the last seconds, with bands of faults under it, its newest values in words and in a table.
import { h, svg, set, text, clock } from "./dom.js";
import uPlot from "./uplot.js";

const SAMPLES = 900, HEIGHT = 150, DASHES = [[], [7, 3], [2, 3], [8, 3, 2, 3]];
const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const short = (value) => (value === null ? "–" : compact.format(value));

// Append a figure to `parent`. `series` is [{label, colour}], with a colour token without its dashes: "c0". Times are in ms.
export function curve(parent, { title, unit, series, seconds }) {
  const times = [], columns = series.map(() => []), span = seconds * 1000;
  let bands = [];
  const newest = () => times.at(-1) ?? Date.now();
  const shownAt = (place) => columns.map((column) => column[place] ?? null);

  const numbers = series.map(() => h("b")), cells = series.map(() => h("td", { class: "n" })), when = h("caption");
  const dash = (colour, place) => svg("svg", { width: 22, height: 12, "aria-hidden": "true" },
    svg("path", { d: "M0,6H22", stroke: `var(--${colour})`, "stroke-width": 2.5, "stroke-dasharray": DASHES[place % 4].join(" ") }));
  const legend = h("div", { class: "legend" }, series.map(({ label, colour }, place) => h("span", null, dash(colour, place), label, numbers[place])));
  const head = h("thead", null, h("tr", null, h("th", { scope: "col" }, "curve"), h("th", { scope: "col", class: "n" }, unit)));
  const rows = series.map(({ label }, place) => h("tr", null, h("th", { scope: "row" }, label), cells[place]));
  const drawing = h("div", { class: "drawing", role: "img", "aria-label": `${title}, ${unit}: no values yet.` });
  const figure = h("figure", { class: "curve" }, h("figcaption", null, `${title} `, h("small", null, unit)), legend, drawing,
    h("details", null, h("summary", null, `Newest values: ${title}`), h("table", null, when, head, h("tbody", null, rows))));
  parent.append(figure);

  const inView = () => bands.filter((band) => band.from_ms <= newest() && (band.to_ms ?? newest()) >= newest() - span);
  const paintBands = ({ ctx, bbox, valToPos }) => {
    ctx.save();
    Object.assign(ctx, { font: `${11 * devicePixelRatio}px system-ui, sans-serif`, textAlign: "left", textBaseline: "alphabetic" });
    for (const { from_ms, to_ms, about, colour = "f0" } of inView()) {
      const x = Math.max(valToPos(from_ms, "x", true), bbox.left), width = Math.min(valToPos(to_ms ?? newest(), "x", true), bbox.left + bbox.width) - x;
      [ctx.fillStyle, ctx.globalAlpha] = [token(colour), Number(token("shade"))];
      ctx.fillRect(x, bbox.top, Math.max(width, 2), bbox.height);
      [ctx.fillStyle, ctx.globalAlpha] = [token("ink"), 1];
      if (ctx.measureText(about).width + 8 < width) ctx.fillText(about, x + 4, bbox.top + 13 * devicePixelRatio);
    }
    ctx.restore();
  };
  const showNumbers = (plot) => shownAt(plot.cursor.idx ?? times.length - 1).forEach((value, place) => text(numbers[place], short(value)));
  const axis = { stroke: () => token("soft"), grid: { stroke: () => token("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const plot = new uPlot({
    width: Math.max(drawing.clientWidth, 50), height: HEIGHT, padding: [8, null, null, null], ms: 1, legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: { x: { range: () => [newest() - span, newest()] }, y: { range: (_, low, high) => [Math.min(low ?? 0, 0), high > 0 ? high * 1.1 : 1] } },
    axes: [{ ...axis, size: 26, space: 90, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 52, space: 24, values: (_, ticks) => ticks.map(short) }],
    series: [{}, ...series.map(({ label, colour }, place) => ({ label, stroke: () => token(colour), width: 2, pxAlign: 0, dash: DASHES[place % 4], points: { show: false } }))],
    hooks: { drawClear: [paintBands], setCursor: [showNumbers] },
  }, [times, ...columns], drawing);

  const resize = () => { if (drawing.clientWidth) plot.setSize({ width: drawing.clientWidth, height: HEIGHT }); };
  const repaint = () => plot.redraw(false);
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
    plot.setData([times, ...columns]);
    showNumbers(plot);
    describe();
  };
  // Replace the bands [{from_ms, to_ms, about, colour}]; to_ms null: it goes on; colour a token, "f0" by default.
  const shade = (next) => { bands = next; repaint(); describe(); };
  const destroy = () => { sizes.disconnect(); themes.disconnect(); dark.removeEventListener("change", repaint); plot.destroy(); figure.remove(); };
  return { push, shade, destroy };
}
