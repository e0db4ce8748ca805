// A question to the broker in STOMP, by a client of its own (docs/reference/diag.md).

import { connect, Ended } from "./connection.js";

/** The broker answers a question in the turn in which it comes. */
const ANSWER_MS = 10_000;

/** The broker's answer to a question at a topic such as `DIAG/left`. */
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
      // It is asked for where all who listen are answered: that takes the right `monitor` alone.
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
