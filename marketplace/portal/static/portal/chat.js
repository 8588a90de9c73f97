// Sends what is typed and shows the answer while it is written. Whatever a model says is only ever put into the page as
// text; HTML comes from our own server, which has escaped it (marketplace/portal/chat/markup.py).
"use strict";

const composer = document.getElementById("composer");
const NEAR_END = 120; // pixels: who reads further up is left there

if (composer) {
  const field = composer.querySelector("textarea");
  const button = composer.querySelector("button");
  const messages = document.getElementById("messages");
  const problem = document.getElementById("problem");
  let isSending = false;

  const fit = () => {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  const isNearEnd = () => window.innerHeight + window.scrollY > document.body.scrollHeight - NEAR_END;
  const toEnd = () => window.scrollTo(0, document.body.scrollHeight);
  const complain = (sentence) => {
    problem.textContent = sentence;
    problem.hidden = !sentence;
  };

  const append = (html) => {
    messages.insertAdjacentHTML("beforeend", html);
    const added = messages.lastElementChild;
    htmx.process(added);
    return added;
  };

  // Only the server's newest word on a message is kept: its markup, its count and its price.
  const refresh = (id) => htmx.ajax("GET", composer.dataset.messages + id, { target: `#m-${id}`, swap: "outerHTML" });

  const show = (event, state) => {
    const wasNearEnd = isNearEnd();
    if (event.question) {
      document.getElementById("hint")?.remove();
      append(event.question);
      const answer = append(event.answer);
      Object.assign(state, { id: event.id, text: answer.querySelector(".text"), note: answer.querySelector(".note") });
      state.text.classList.add("said");
      for (const place of document.querySelectorAll("h1, .list [aria-current]")) place.textContent = event.title;
      field.value = "";
      fit();
      toEnd();
    }
    if (event.text) state.text.append(event.text);
    if ("note" in event) state.note.textContent = event.note || (state.text.textContent ? "" : "…");
    if (wasNearEnd) toEnd();
  };

  const read = async (body, state) => {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) if (block.startsWith("data: ")) show(JSON.parse(block.slice(6)), state);
    }
  };

  const send = async () => {
    const state = {};
    isSending = button.disabled = true;
    complain("");
    try {
      const answer = await fetch(composer.action, {
        method: "POST",
        body: new FormData(composer),
        headers: { Accept: "text/event-stream" },
      });
      if (!answer.ok) {
        const said = await answer.json().catch(() => ({}));
        complain(said.message || "That did not work. Please load the page again.");
      } else {
        await read(answer.body, state);
      }
    } catch {
      complain("The connection broke. The answer goes on, and is saved.");
    }
    if (state.id) await refresh(state.id);
    isSending = button.disabled = false;
    field.focus();
  };

  composer.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!isSending && field.value.trim()) send();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    composer.requestSubmit();
  });
  field.addEventListener("input", fit);
  toEnd();
}
