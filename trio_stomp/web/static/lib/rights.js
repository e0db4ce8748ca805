// Buttons of operations that the user may not request are off, with the reason as their title.

import { Refused } from "./api.js";

/** The buttons of a view that request operations. */
export class Rights {
  #turn = 0;

  constructor(api) {
    this.api = api;
  }

  /**
   * Turn buttons on or off: {button, operation, at}. Without `at`, a destination, the operation is
   * one that names none.
   *
   * If the operations cannot be read, the buttons stay as they are: the broker checks each request.
   */
  async apply(needs) {
    this.#turn += 1;
    const turn = this.#turn;
    const places = [...new Set(needs.map(({ at }) => at))];
    let answers;
    try {
      answers = await Promise.all(places.map((destination) => this.api.get("whoami", { destination })));
    } catch (error) {
      if (error instanceof Refused) return;
      throw error;
    }
    if (turn !== this.#turn) return;
    for (const { button, operation, at } of needs) {
      const { user, operations } = answers[places.indexOf(at)];
      const place = at === undefined ? "" : ` at ${at}`;
      const reason = `${user || "An anonymous user"} may not request ${operation}${place}.`;
      allow(button, operations.includes(operation), reason);
    }
  }
}

/** Turn a button on, or off for a reason. */
export function allow(button, isAllowed, reason) {
  const title = isAllowed ? "" : reason;
  // Unchanged values are not set, as the browser would recompute the style.
  if (button.disabled === isAllowed) button.disabled = !isAllowed;
  if (button.title !== title) button.title = title;
}
