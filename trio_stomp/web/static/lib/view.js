// Views that load their data periodically while they are shown.

export class View {
  // Subclasses have a `loader`, an `outcome`, and `clear()`, which removes what is shown.

  /** Called when the view is opened. */
  visit() {
    this.outcome.hide();
    this.loader.now();
  }

  /** Called each second while the view is open. `period`, in milliseconds, is that of requests. */
  refresh(period) {
    this.loader.again(period);
  }

  /** Called when another view is opened. */
  leave() {
    this.loader.forget();
  }

  /** Forget what is shown, as another user may not see it. */
  forget() {
    this.leave();
    this.outcome.hide();
    this.clear();
  }
}

/** A view of one thing, named by a parameter of the address. */
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

  /** Prepare to show another thing, before its data is loaded. */
  begin() {}
}
