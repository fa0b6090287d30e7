// The login: a user of the cluster. The console keeps no passwords.
import { h, alert, text } from "./dom.js";

export default {
  title: "Log in",
  open(view, app) {
    const user = h("input", { id: "user", autocomplete: "username", required: true });
    const password = h("input", { id: "password", type: "password", autocomplete: "current-password", required: true });
    const failed = alert();
    view.append(h("section", { class: "login" }, h("h2", null, "Log in as a user of the cluster"),
      h("form", { onsubmit: async (event) => {
        event.preventDefault();
        text(failed, "");
        try { await app.post("login", { user: user.value, password: password.value }); } catch (error) { text(failed, error.message); password.select(); return; }
        const to = app.query.get("to") ?? "/quorum";
        location.assign(to.startsWith("/") && !to.startsWith("//") && !to.startsWith("/\\") ? to : "/quorum");
      } }, h("label", { for: "user" }, "User"), user, h("label", { for: "password" }, "Password"), password, h("button", { class: "primary" }, "Log in"), failed)));
    user.focus();
  },
};
