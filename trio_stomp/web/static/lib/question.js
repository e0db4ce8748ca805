// Requests to DIAG topics, over a separate STOMP connection (docs/reference/diag.md).

import { connect, Ended } from "./connection.js";

/** Limit of the time for an answer. The broker answers in the turn of the request. */
const ANSWER_MS = 10_000;

/** Send a request to a topic such as `DIAG/left`, and return the broker's answer. */
export async function answerOf(credentials, topic, question) {
  let connection;
  let timer;
  const failed = new Promise((_, reject) => {
    connection = connect({ credentials, onEnd: reject });
    timer = setTimeout(() => reject(new Ended("", "the broker does not answer")), ANSWER_MS);
  });
  const answered = new Promise((resolve) => {
    const mine = `${Date.now()}-${Math.random()}`;
    const send = () => {
      // Without reply-to the answer goes to all subscribers, which requires only `monitor`.
      connection.subscribe(topic, {}, (message) => {
        if (message.headers["correlation-id"] === mine) resolve(JSON.parse(message.body));
      });
      connection.send(topic, { "correlation-id": mine }, { body: JSON.stringify(question) });
    };
    connection.opened.then(send, () => {});
  });
  try {
    return await Promise.race([answered, failed]);
  } finally {
    clearTimeout(timer);
    connection.close();
  }
}
