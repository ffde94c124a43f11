// A message that is written anew, in its place.

import { make } from "./dom.js";

/** Return a form with a message; `done(text)` is called with the new one, or with null if it stays as it was. */
export function editForm(prompt, done) {
  const field = make("textarea", { rows: "3", "aria-label": "Edit your message" });
  field.value = prompt;
  const cancel = make("button", { type: "button" }, "Cancel");
  const form = make("form", { class: "edit" }, field, cancel, make("button", { type: "submit", class: "primary" }, "Send"));
  cancel.addEventListener("click", () => done(null));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim()) done(field.value);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") done(null);
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  return form;
}
