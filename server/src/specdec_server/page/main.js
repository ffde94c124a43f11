// Chat with the model that the server serves, and see what of each answer was drafted.

import { get, useKey } from "./api.js";
import { fill, requestBody } from "./ask.js";
import { $, announce, make } from "./dom.js";
import { BEGINNINGS, QUESTIONS } from "./examples.js";
import { setOpen, setUpFold, summarise } from "./fold.js";
import { showPositions, showSpeed, showStep, speedText, stepSummary, verdictText } from "./panel.js";
import { Run, statistics } from "./run.js";
import { isFormatted, limitSettings, readSettings, setUpSettings } from "./settings.js";
import { keepTurns, keptTurns } from "./store.js";
import { TurnView } from "./turn.js";

const page = { info: null, turns: [], views: [], running: null, chosen: null };

async function connect() {
  try {
    page.info = await get("server_info");
  } catch (error) {
    $("served").textContent = "not connected";
    tellError(error);
    return;
  }
  tellError(null);
  $("key-form").hidden = true;
  const { model, has_chat_template: isChat, speculative_config: config } = page.info;
  const more = `${config ? `, up to ${config.num_speculative_tokens} drafted tokens a step` : ""} · ${page.info.dtype} on ${page.info.device}`;
  $("served").replaceChildren(make("b", {}, model), ` · ${config?.method ?? "no drafts"}`, make("span", { class: "long" }, more));
  document.title = `${model} · specdec`;
  $("docs").hidden = !page.info.has_docs;
  $("message-label").textContent = $("message").placeholder = isChat ? "Message" : "Text to continue";
  limitSettings(page.info);
  for (const view of page.views) view.format(hasMarkdown());
  showEmpty();
}

function showEmpty() {
  const isChat = page.info?.has_chat_template ?? true;
  $("empty").hidden = page.turns.length > 0 || !page.info;
  $("empty-title").textContent = isChat ? "Ask something" : "Begin a text";
  $("empty-text").textContent =
    (isChat ? "" : "This model has no chat template: it goes on with what you write. ") +
    "Tokens that were drafted, and accepted by the model, are coloured: one colour for each proposer, stronger the deeper in the draft.";
  const isCode = page.info?.root === "zoo"; // trained on Python alone
  const asks = isChat && !isCode;
  const buttons = (asks ? QUESTIONS : BEGINNINGS).map(({ title, text }) => {
    const line = text.trim().split("\n").at(asks ? 0 : -1);
    const button = make("button", { type: "button" }, make("b", {}, title), make("span", {}, line));
    button.addEventListener("click", () => ask(text));
    return make("li", {}, button);
  });
  $("examples").replaceChildren(...buttons);
}

function tellError(error) {
  $("error").hidden = !error;
  $("error").textContent = error ? error.message : "";
  if (error?.status === 401) {
    $("key-form").hidden = false;
    $("key").focus();
  }
}

function showTurn(turn) {
  const view = new TurnView(turn, hasMarkdown(), { choose, compare, again });
  page.views.push(view);
  $("turns").append(view.element);
  offer();
  return view;
}

/** Show a turn anew, in the place of the view of it. */
function replaceTurn(shown) {
  const view = new TurnView(shown.turn, hasMarkdown(), { choose, compare, again });
  page.views[page.views.indexOf(shown)] = view;
  shown.element.replaceWith(view.element);
  page.chosen = null;
  showStep(null, null);
  offer();
  return view;
}

/** Offer at each turn what can be done with it now. */
function offer() {
  page.views.forEach((view, index) => view.offer(page.running !== null, index === page.views.length - 1));
}

function hasMarkdown() {
  return isFormatted() && (page.info?.has_chat_template ?? true);
}

function choose(view, segment, isSpoken) {
  if (page.chosen && page.chosen.view !== view) page.chosen.view.move(null);
  page.chosen = { view, segment };
  showStep(view.run, segment);
  if (segment.step === null) return;
  const told = stepSummary(view.run.steps[segment.step], segment);
  summarise(told);
  if (isSpoken) announce(told);
}

function showPanel(turn) {
  showSpeed(turn?.run, turn?.plain);
  showPositions(turn?.run);
  summarise(speedText(turn?.run, turn?.plain));
}

async function ask(prompt) {
  if (page.running || !page.info || !prompt.trim()) return;
  const settings = readSettings();
  if (!settings) {
    setOpen(true); // where the wrong field is
    return;
  }
  const { isDrafting, ...asked } = settings;
  const turn = { prompt, run: new Run({ settings: asked, isDrafting }), plain: null };
  page.turns.push(turn);
  $("empty").hidden = true;
  setOpen(false);
  const shown = showTurn(turn);
  shown.element.scrollIntoView({ block: "nearest" });
  await answer(shown, turn.run, shown.views[0]);
  if (!turn.run.steps.length) {
    page.turns.pop();
    page.views.pop();
    shown.element.remove();
    offer();
    $("message").value ||= prompt;
    showEmpty();
    showPanel(page.turns.at(-1));
  }
}

/** Answer the last turn once more, with the settings as they are now; without an answer the one before stays. */
async function again(shown, prompt) {
  if (page.running || !page.info) return;
  const settings = readSettings();
  if (!settings) {
    setOpen(true);
    return;
  }
  const { isDrafting, ...asked } = settings;
  const { turn } = shown;
  const before = { ...turn };
  Object.assign(turn, { prompt, run: new Run({ settings: asked, isDrafting }), plain: null });
  const view = replaceTurn(shown);
  $("message").focus();
  await answer(view, turn.run, view.views[0]);
  if (turn.run.steps.length) return;
  Object.assign(turn, before);
  replaceTurn(view);
  showPanel(turn);
  keep();
}

/** Run a turn's request again without drafts; after a stop, for as many tokens as had come. */
async function compare(shown) {
  if (page.running || !page.info) return;
  const { turn } = shown;
  const { settings, finish, tokenIds } = turn.run;
  const maxTokens = finish === "stopped" ? tokenIds.length : settings.maxTokens;
  turn.plain = new Run({ settings: { ...settings, maxTokens }, isDrafting: false });
  const view = shown.add(turn.plain);
  await answer(shown, turn.plain, view);
  if (!turn.plain.steps.length) {
    turn.plain = null;
    shown.remove(view);
    offer();
    showPanel(turn);
  }
}

/** Fill a run with the server's answer, and show it as it comes. */
async function answer(shown, run, view) {
  const { turn } = shown;
  tellError(null);
  setRunning(new AbortController());
  announce("The answer begins");
  const isChat = page.info.has_chat_template;
  const turns = page.turns.slice(0, page.turns.indexOf(turn) + 1);
  let isDue = false;
  const refresh = (isWriting) => {
    isDue = false;
    const follows = atEnd();
    view.show(isWriting);
    if (follows) $("turns").scrollTop = $("turns").scrollHeight;
    showPanel(turn);
  };
  view.show(true);
  try {
    await fill(run, requestBody(turns, run.settings, isChat, run.isDrafting), isChat, page.running.signal, (segments) => {
      view.append(segments);
      if (isDue) return;
      isDue = true;
      requestAnimationFrame(() => refresh(page.running !== null && !run.finish));
    });
  } catch (error) {
    tellError(error);
  }
  setRunning(null);
  refresh(false);
  if (run.steps.length) announce(`${summary(turn)} ${run.text}`);
  keep();
}

function summary({ run, plain }) {
  const { tokens, accepted } = statistics(run);
  const speed = run.speed ? `, ${Math.round(run.speed)} tokens per second` : "";
  const same = plain?.finish ? ` ${verdictText(run, plain)}.` : "";
  return `Answer of ${tokens} tokens, ${accepted} from drafts${speed}.${same}`;
}

function atEnd() {
  const turns = $("turns");
  return turns.scrollHeight - turns.scrollTop - turns.clientHeight < 80;
}

function setRunning(controller) {
  page.running = controller;
  $("stop").hidden = !controller;
  $("send").disabled = $("clear").disabled = Boolean(controller);
  $("turns").setAttribute("aria-busy", String(Boolean(controller)));
  offer();
}

function stop() {
  page.running?.abort();
}

function keep() {
  if (!keepTurns(page.turns)) tellError(new Error("This conversation is too long to outlive a reload of the page."));
}

function clear() {
  page.turns = [];
  page.views = [];
  page.chosen = null;
  for (const turn of document.querySelectorAll(".turn")) turn.remove();
  tellError(null);
  showPanel(null);
  showStep(null, null);
  showEmpty();
  keep();
  $("message").focus();
  announce("The conversation is cleared");
}

function moveStep(direction) {
  const { view, segment } = page.chosen;
  view.moveToStep(segment.step + direction);
}

function setUp() {
  setUpSettings(() => page.views.forEach((view) => view.format(hasMarkdown())));
  setUpFold();
  page.turns = keptTurns();
  for (const turn of page.turns) showTurn(turn);
  $("turns").scrollTop = $("turns").scrollHeight;
  showPanel(page.turns.at(-1));
  showStep(null, null);
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("message").value;
    if (page.running || !page.info || !text.trim()) return;
    $("message").value = "";
    ask(text);
  });
  $("message").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("composer").requestSubmit();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && stop());
  $("stop").addEventListener("click", stop);
  $("clear").addEventListener("click", clear);
  $("previous-step").addEventListener("click", () => moveStep(-1));
  $("next-step").addEventListener("click", () => moveStep(1));
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    useKey($("key").value);
    connect();
  });
  window.addEventListener("pagehide", keep);
  connect();
}

setUp();
