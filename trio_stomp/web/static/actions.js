// What an operator does to a queue, or asks the broker, in plain STOMP: each action is a client of
// its own, so that an ERROR ends it and nothing else.

import { connect, Ended } from "./connection.js";
import { headersForRetry, targetOf } from "./retry.js";

/** Messages on their way at once. */
const WINDOW = 50;
/** Bytes of those that are left where they are, while the others are sent. */
const LEFT_BYTES = 64 * 1024 * 1024;
/** No message for so long: others have taken the rest. */
const QUIET_MS = 1500;

const EXPLAIN = "DIAG/explain";
const LEFT = "DIAG/left";
const MANAGEMENT = "/topic/ActiveMQ.Scheduler.Management";
/** The broker answers a question in the turn in which it comes. */
const ANSWER_MS = 10_000;

export const MAX_BROWSED = 1000;

/** Run `work(connection)` as a client of its own; fails as the connection does. */
async function withClient(credentials, work) {
  let connection;
  const ended = new Promise((_, reject) => {
    connection = connect({ credentials, onEnd: reject });
  });
  try {
    await Promise.race([connection.opened, ended]);
    return await Promise.race([work(connection), ended]);
  } finally {
    connection.close();
  }
}

/** Look at the first messages of a queue: {messages, isAll}. */
export function browse(credentials, name, limit = MAX_BROWSED) {
  return withClient(
    credentials,
    (connection) =>
      new Promise((resolve) => {
        const messages = [];
        const finish = (isAll) => {
          subscription.unsubscribe();
          resolve({ messages, isAll });
        };
        const subscription = connection.subscribe(name, { browser: "true" }, (message) => {
          if (message.headers.browser === "end") finish(true);
          else if (messages.length === limit) finish(false);
          else messages.push(message);
        });
      }),
  );
}

/**
 * Take `count` messages off a queue, or those that there are, one after the other.
 *
 * What `handle(message, number)` does not acknowledge goes back, as does a message that comes beyond
 * `count` while the end is under way. Returns how many were handled.
 */
function take(connection, name, count, handle, credit = `${Math.min(WINDOW, count)}`) {
  return new Promise((resolve, reject) => {
    let handled = 0;
    let timer = 0;
    let isOver = false;
    const finish = () => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      // Frames of one connection are handled in order: what its RECEIPT confirms is all before it.
      connection
        .confirmed((receipt) => subscription.unsubscribe(receipt))
        .then(() => resolve(handled), reject);
    };
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(finish, QUIET_MS);
    };
    const headers = { ack: "client-individual", credit };
    const subscription = connection.subscribe(name, headers, (message) => {
      if (isOver) return;
      handled += 1;
      handle(message, handled);
      if (handled >= count) finish();
      else wait();
    });
    wait();
  });
}

/** Consume `count` messages of a queue; returns how many it were. */
export function purge(credentials, name, count, onProgress) {
  return withClient(credentials, (connection) =>
    take(connection, name, count, (message, number) => {
      message.ack();
      onProgress(number);
    }),
  );
}

/**
 * Send the first `count` dead letters of a queue to where they were sent first.
 *
 * Each is sent and acknowledged in one transaction: it is never in both places, nor in none. Those
 * for other destinations than `chosen` stay. Returns {sent, left}.
 */
export function retry(credentials, name, count, chosen, onProgress) {
  return withClient(credentials, async (connection) => {
    let sent = 0;
    const again = (message, number) => {
      onProgress(number);
      const target = targetOf(message.headers);
      if (!chosen.has(target)) return;
      const transaction = `retry-${number}`;
      const headers = { ...headersForRetry(message.headers), transaction };
      connection.begin(transaction);
      connection.send(target, headers, { binaryBody: message.binaryBody });
      message.ack({ transaction });
      connection.commit(transaction);
      sent += 1;
    };
    const all = await take(connection, name, count, again, `${count},${LEFT_BYTES}`);
    return { sent, left: all - sent };
  });
}

/**
 * The broker's answer to a question (docs/reference/diag.md), for which `isAnswer(answer)`.
 *
 * It is asked for where it is told to all who listen, not with `reply-to`: that takes the right
 * `monitor` alone, which whoever sees this page has.
 */
function answered(credentials, place, question, isAnswer) {
  return withClient(
    credentials,
    (connection) =>
      new Promise((resolve, reject) => {
        const late = () => reject(new Ended("", "the broker does not answer"));
        const timer = setTimeout(late, ANSWER_MS);
        const mine = `${Date.now()}-${Math.random()}`;
        connection.subscribe(place, {}, (message) => {
          if (message.headers["correlation-id"] !== mine) return;
          clearTimeout(timer);
          const answer = readAnswer(message.body, isAnswer);
          if (answer === null) reject(new Ended("", "the broker's answer is unreadable"));
          else resolve(answer);
        });
        connection.send(place, { "correlation-id": mine }, { body: JSON.stringify(question) });
      }),
  );
}

/** An answer, or null of what is none: an error here would stop the client. */
function readAnswer(body, isAnswer) {
  try {
    const answer = JSON.parse(body);
    return isAnswer(answer) ? answer : null;
  } catch {
    return null;
  }
}

/** What the broker knows about a message or a destination. */
export function explain(credentials, question) {
  const isAnswer = ({ summary, events }) => typeof summary === "string" && Array.isArray(events);
  return answered(credentials, EXPLAIN, question, isAnswer);
}

/** A part of what users have left that acts later: {left, next}. */
export function left(credentials, question) {
  return answered(credentials, LEFT, question, (answer) => Array.isArray(answer.left));
}

/** End what is scheduled under an id; returns how many messages that were. */
export function cancel(credentials, id) {
  return withClient(credentials, async (connection) => {
    const asked = { AMQ_SCHEDULER_ACTION: "REMOVE", scheduledJobId: id };
    const told = await connection.confirmed((receipt) =>
      connection.send(MANAGEMENT, { ...asked, ...receipt }, { body: "" }),
    );
    return Number(told.removed) || 0;
  });
}
