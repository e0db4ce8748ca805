// @stomp/stompjs in Node, over WebSocket (the package ws).

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { run } from "./scenario.mjs";
import { Stompjs } from "./stompjs.mjs";
import { arguments_, cut, packageVersion, say } from "./node.mjs";

const require = createRequire(new URL("../js/package.json", import.meta.url));
const WebSocket = require("ws");
const { transport, host, port, caFile, tag } = arguments_;

const makeSocket = (protocols) =>
  new WebSocket(`${transport}://${host}:${port}/ws`, protocols, { ca: readFileSync(caFile) });
const make = () =>
  new Stompjs(require("@stomp/stompjs"), packageVersion("@stomp/stompjs"), makeSocket, cut);

process.exit(await run(make(), make, tag, process.version, say));
