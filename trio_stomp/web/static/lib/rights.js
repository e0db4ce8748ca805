// Buttons of operations that the user may not request are off, with the reason as their title.

import { Refused } from "./api.js";

/** The name of the statistics, whose rights are those for the broker as a whole. */
export const BROKER = "DIAG";

/** The buttons of a view that require a right. */
export class Rights {
  #turn = 0;

  constructor(api) {
    this.api = api;
  }

  /**
   * Turn buttons on or off: {button, right, at}, where `at` is a destination or `BROKER`.
   *
   * If the rights cannot be read, the buttons stay as they are: the broker checks each request.
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
    for (const { button, right, at } of needs) {
      const { user, rights } = answers[places.indexOf(at)];
      button.disabled = !rights.includes(right);
      button.title = button.disabled ? `${user || "An anonymous user"} needs the right ${right} at ${at}.` : "";
    }
  }
}
