// Periodic loading of a view's data.

/** Runs one request at a time. Outdated answers are dropped. */
export class Loader {
  #turn = 0;
  #isBusy = false;
  #at = 0;
  #hasFailed = false;

  /**
   * `load()` requests an answer, and `onAnswer(answer)` shows it. `outcome` shows an error, unless
   * `onProblem(error)` returns true.
   */
  constructor({ load, onAnswer, onProblem = () => false, outcome }) {
    Object.assign(this, { load, onAnswer, onProblem, outcome });
  }

  /** Load now, even if a request is running. Its answer is dropped. */
  async now() {
    this.#turn += 1;
    const turn = this.#turn;
    this.#isBusy = true;
    this.#at = Date.now();
    try {
      const answer = await this.load();
      if (turn !== this.#turn) return;
      if (this.#hasFailed) this.outcome.hide();
      this.#hasFailed = false;
      this.onAnswer(answer);
    } catch (error) {
      if (turn !== this.#turn || this.onProblem(error)) return;
      this.#hasFailed = true;
      this.outcome.fail(error);
    } finally {
      if (turn === this.#turn) this.#isBusy = false;
    }
  }

  /** Load if `period` milliseconds have passed since the last request, and none is running. */
  again(period) {
    if (!this.#isBusy && Date.now() - this.#at >= period) this.now();
  }

  /** Drop the answer of the running request. */
  forget() {
    this.#turn += 1;
    this.#isBusy = false;
  }
}
