// What is asked of the server: the next message of a conversation, or the continuation of a text.

import { stream } from "./api.js";

/** Return the body of a request. `turns` are the earlier ones, and last that which is to be answered. */
export function requestBody(turns, settings, isChat, isDrafting) {
  const body = {
    temperature: settings.temperature,
    seed: settings.seed,
    max_tokens: settings.maxTokens,
    return_draft_steps: true,
  };
  if (!isDrafting) body.speculative = false;
  if (!isChat) return { ...body, prompt: turns.at(-1).prompt };
  const messages = settings.system ? [{ role: "system", content: settings.system }] : [];
  turns.forEach(({ prompt, run }, index) => {
    messages.push({ role: "user", content: prompt });
    if (index < turns.length - 1) messages.push({ role: "assistant", content: run.text });
  });
  return { ...body, messages };
}

/** Fill a run with an answer; `show(segments)` is told of every piece. An answer that is given up has finish `stopped`. */
export async function fill(run, body, isChat, signal, show) {
  try {
    for await (const piece of stream(isChat ? "v1/chat/completions" : "v1/completions", body, signal)) {
      const choice = piece.choices[0];
      if (!choice) continue;
      const delta = choice.delta ?? {};
      show(run.take(choice, (isChat ? delta.content : choice.text) ?? "", delta.reasoning_content ?? ""));
    }
  } catch (error) {
    run.finish = "stopped";
    if (error.name !== "AbortError") throw error;
  }
}
