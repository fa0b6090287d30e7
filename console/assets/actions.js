// The dialog of an action: what will happen, what the cluster says to it, the same as a command, and the button.
import { h } from "./dom.js";

const WORDS_MAX = 100;

// Show the answer of the check: replicas before and after for moves and plans, otherwise its fields.
function answered(answer) {
  const moves = (answer.responses ?? answer.topics ?? []).flatMap((topic) => (topic.partitions ?? []).map((each) => [topic.name, each]));
  if (!moves.length || !moves[0][1].replicas) return null;
  const list = (ids) => (ids?.length ? `[${ids.join(", ")}]` : "–");
  return h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "What the cluster answered" }, h("table", null,
    h("thead", null, h("tr", null, ["partition", "replicas", "adding", "removing", "target"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, moves.map(([name, each]) => h("tr", null, h("th", { scope: "row" }, `${name}-${each.partition_index ?? 0}`),
      [each.replicas, each.adding_replicas, each.removing_replicas, each.target_replicas].map((ids) => h("td", null, list(ids))))))));
}

export function command(line) {
  const button = h("button", { onclick: async () => { await navigator.clipboard.writeText(line); button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); } }, "Copy");
  return h("div", { class: "command" }, h("code", { tabindex: "0" }, line), button);
}

// Resolve with the answer once the action is done, with null if it was given up. `options`: title, node, button.
export function dialog(app, name, request, { title = "Change the cluster", node = null, button = "Do it", log_dirs } = {}) {
  return new Promise((resolve) => {
    const body = h("div", null, h("p", null, "Asking the cluster what this would do …"));
    const confirm = h("button", { class: "primary", disabled: true }, button);
    const box = h("dialog", { class: "action", "aria-labelledby": "action-title" }, h("h2", { id: "action-title" }, title), body,
      h("div", { class: "tools" }, confirm, h("button", { onclick: () => box.close() }, button.startsWith("Cancel") ? "Close" : "Cancel")));
    let outcome = null;
    const fail = (error) => body.append(h("p", { class: "bad", role: "alert" }, error.message));
    const send = (preview) => app.post(`actions/${name}`, { request, preview, node, log_dirs });
    const force = h("button", { class: "danger", onclick: () => { request = { ...request, force: true }; force.remove(); ask(); } }, "See what force does");
    box.addEventListener("close", () => { box.remove(); resolve(outcome); });
    document.body.append(box);
    box.showModal();
    const ask = () => send(true).then((shown) => {
      const typed = shown.typed ? h("input", { autocomplete: "off", "aria-label": `Type ${shown.typed} to confirm`, oninput: () => { confirm.disabled = typed.value !== shown.typed; } }) : null;
      const may = app.about.may_alter || app.about.must_log_in;
      body.replaceChildren(h("ul", null, shown.words.slice(0, WORDS_MAX).map((line) => h("li", null, line)), shown.words.length > WORDS_MAX ? h("li", null, `and ${shown.words.length - WORDS_MAX} more, as the command below has them`) : ""),
        h("p", { class: "note" }, shown.checked ? "The cluster has checked this change and would accept it." : "The cluster checks this change only when it makes it."),
        answered(shown.answer ?? {}) ?? "", h("h3", null, "As a command"), command(shown.command),
        typed ? h("label", { class: "typed" }, "Type ", h("b", null, shown.typed), " to confirm ", typed) : "");
      if (app.about.read_only) body.append(h("p", { class: "unknown" }, "This console was started with --read-only: use the command."));
      confirm.disabled = app.about.read_only || !may || Boolean(typed);
      (typed ?? confirm).focus();
    }, (error) => { body.replaceChildren(); fail(error); if (/\bforce\b/.test(error.message) && !request.force) body.append(force); });
    ask();
    confirm.addEventListener("click", async () => {
      confirm.disabled = true;
      try {
        outcome = await send(false);
        app.say(`${title}: done`);
        box.close();
      } catch (error) { fail(error); confirm.disabled = false; }
    });
  });
}

// Ask for the fields of a request: [[name, label, value, attributes]]; `options` of the attributes makes a list to choose from,
// `rows` a text of lines. Resolve with the values by name, with null if it was given up.
export function form(title, fields) {
  return new Promise((resolve) => {
    const inputs = fields.map(([name, , value, { options, ...attributes }]) => (options ? h("select", { name }, options.map((each) => h("option", { value: each }, each)))
      : h(attributes.rows ? "textarea" : "input", { name, value: value ?? "", autocomplete: "off", ...attributes })));
    let outcome = null;
    const submit = (event) => { event.preventDefault(); outcome = Object.fromEntries(inputs.map((each) => [each.name, each.value])); box.close(); };
    const box = h("dialog", { "aria-labelledby": "form-title" }, h("h2", { id: "form-title" }, title), h("form", { class: "asked", onsubmit: submit },
      inputs.map((each, at) => h("label", null, fields[at][1], each)), h("div", { class: "tools" }, h("button", { class: "primary" }, "Go on"), h("button", { type: "button", onclick: () => box.close() }, "Cancel"))));
    box.addEventListener("close", () => { box.remove(); resolve(outcome); });
    document.body.append(box);
    box.showModal();
  });
}
