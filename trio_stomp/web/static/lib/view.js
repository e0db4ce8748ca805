// Views that load what they show, again and again while they are shown.

export class View {
  // Subclasses have a `loader`, an `outcome`, and `clear()`, which removes what is shown.

  /** It is opened. */
  visit() {
    this.outcome.hide();
    this.loader.now();
  }

  /** It is open; `period` in milliseconds. */
  refresh(period) {
    this.loader.again(period);
  }

  /** Another is opened. */
  leave() {
    this.loader.forget();
  }

  /** Forget what is shown: somebody else may not see it. */
  forget() {
    this.leave();
    this.outcome.hide();
    this.clear();
  }
}

/** The view of one thing, whose name is a parameter of the address. */
export class Page extends View {
  name = "";

  constructor(parameter) {
    super();
    this.parameter = parameter;
  }

  visit(search) {
    const name = new URLSearchParams(search).get(this.parameter) ?? "";
    if (name !== this.name) {
      this.name = name;
      this.forget();
      this.begin(name);
    }
    if (name !== "") this.loader.now();
  }

  /** Show another thing; nothing of it is known yet. */
  begin() {}
}
