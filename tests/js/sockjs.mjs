// Send texts to ourselves with stompjs over SockJS, and print what came back.
//
//   node sockjs.mjs PORT
//
// Prints a line of JSON for each message, its body; then it does what is an error, and prints the
// ERROR's code, and code and reason of the close.

import { Client } from "@stomp/stompjs";
import SockJS from "sockjs-client";

const [port] = process.argv.slice(2);
const TOPIC = "/topic/sockjs";
const MANY = "😀".repeat(30_000); // of two chunks of it, one is cut within a pair
const TEXTS = ["plain", '"quoted" \\ back', "Grüße 茶 😀", "\u2028\u0001\n", MANY, `x${MANY}`];

const client = new Client({
  webSocketFactory: () =>
    new SockJS(`http://127.0.0.1:${port}/portfolio`, null, { transports: ["websocket"] }),
  // This cuts pairs of surrogates, too: SockJS escapes each half, so nothing is lost.
  splitLargeFrames: true,
  reconnectDelay: 0,
});

let received = 0;

client.onConnect = () => {
  client.watchForReceipt("subscribed", () => {
    for (const body of TEXTS) {
      client.publish({ destination: TOPIC, body });
    }
  });
  client.subscribe(
    TOPIC,
    (message) => {
      console.log(JSON.stringify(message.body));
      received += 1;
      if (received === TEXTS.length) client.publish({ destination: "DIAG/session", body: "" });
    },
    { receipt: "subscribed" },
  );
};
client.onStompError = (frame) => console.log(JSON.stringify(["ERROR", frame.headers.code]));
client.onWebSocketClose = (event) => {
  console.log(JSON.stringify([event.code, event.reason]));
  client.deactivate().then(() => process.stdout.write("", () => process.exit(0)));
};
client.activate();
