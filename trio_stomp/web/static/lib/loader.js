// What a view shows, loaded again and again while it is shown.

/** One request at a time; an answer to what is no longer asked is dropped. */
export class Loader {
  #turn = 0;
  #isBusy = false;
  #at = 0;
  #hasFailed = false;

  /**
   * `load()` returns a promise of an answer, which `onAnswer(answer)` shows; `outcome` tells why
   * there is none, unless `onProblem(error)` does.
   */
  constructor({ load, onAnswer, onProblem = () => false, outcome }) {
    Object.assign(this, { load, onAnswer, onProblem, outcome });
  }

  /** Load now, whatever is under way. */
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

  /** Load if the last time is `period` milliseconds ago, and nothing is under way. */
  again(period) {
    if (!this.#isBusy && Date.now() - this.#at >= period) this.now();
  }

  /** What is under way is not wanted any more. */
  forget() {
    this.#turn += 1;
    this.#isBusy = false;
  }
}
