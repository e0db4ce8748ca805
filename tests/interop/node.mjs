// What the programs for Node share.

import { readFileSync } from "node:fs";
import { connect } from "node:net";

const [transport, host, port, cutPort, caFile, tag] = process.argv.slice(2);

export const arguments_ = { transport, host, port: Number(port), caFile, tag };

// Has the link to the broker cut; resolves when that is done.
export function cut() {
  return new Promise((resolve, reject) => {
    const link = connect(Number(cutPort), host);
    link.on("error", reject);
    link.on("close", resolve);
    link.resume();
  });
}

export function packageVersion(name) {
  const file = new URL(`../js/node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")).version;
}

export function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
