// Views that load their data periodically while they are shown.

import { Outcome } from "./dialogs.js";
import { byId, say } from "./dom.js";
import { count } from "./format.js";
import { Loader } from "./loader.js";
import { ROWS_SHOWN, Table } from "./table.js";

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

/** A list of the management interface: a filter, the number of things, and a table of the first. */
export class ListView extends View {
  /** `name` is the id of the view; `items(answer)` returns the rows; `table` describes the table. */
  constructor({ api, name, items, table }) {
    super();
    Object.assign(this, { api, items });
    this.filter = byId(`${name}-filter`);
    this.count = byId(`${name}-count`);
    this.outcome = new Outcome(byId(`${name}-result`));
    this.table = new Table(byId(`${name}-table`), { onSort: () => this.loader.now(), ...table });
    this.loader = new Loader({
      load: () =>
        api.get(name, { ...this.parameters(), name: this.filter.value.trim(), limit: ROWS_SHOWN }),
      onAnswer: (answer) => this.take(answer),
      outcome: this.outcome,
    });
    this.filter.addEventListener("input", () => this.loader.now());
  }

  /** The parameters of the request, beside the filter. */
  parameters() {
    return {};
  }

  take(answer) {
    say(this.count, count(answer.total));
    this.table.update(this.items(answer), answer.total);
  }

  clear() {
    this.table.update([]);
  }
}
