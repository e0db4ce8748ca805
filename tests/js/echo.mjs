// Send back whatever comes, with stompjs over WebSocket: bytes of the body, and the header "text".
//
//   node echo.mjs PORT VERSION
//
// Ends when its standard input does.

import { Client, Versions } from "@stomp/stompjs";
import WebSocket from "ws";

const [port, version] = process.argv.slice(2);

const client = new Client({
  webSocketFactory: () =>
    new WebSocket(`ws://127.0.0.1:${port}/ws`, client.stompVersions.protocolVersions()),
  stompVersions: new Versions([version]),
  reconnectDelay: 0,
});

function fail(error) {
  console.error(`echo: ${error}`);
  process.exit(1);
}

client.onConnect = () => {
  client.watchForReceipt("subscribed", () => console.log("subscribed"));
  client.subscribe(
    "/topic/echo/there",
    (message) =>
      client.publish({
        destination: "/topic/echo/back",
        binaryBody: message.binaryBody,
        headers: { text: message.headers.text },
      }),
    { receipt: "subscribed" },
  );
};
client.onStompError = (frame) => fail(frame.headers.message);
client.onWebSocketClose = (event) => {
  if (client.active) fail(`the connection was lost: ${event.code} ${event.reason}`);
};
client.activate();

process.stdin.on("end", () => client.deactivate());
process.stdin.resume();
