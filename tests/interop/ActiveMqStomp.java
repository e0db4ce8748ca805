// The small STOMP client of ActiveMQ's own library (StompConnection), over TCP and TLS; the same
// steps as in _scenario.py.

import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;
import org.apache.activemq.transport.stomp.StompConnection;
import org.apache.activemq.transport.stomp.StompFrame;

public final class ActiveMqStomp {
  static final int PATIENCE_MS = 20_000;
  static final int BEATS_MS = 300;
  static final int IDLE_MS = 2000;
  static final int TOGETHER = 20;

  final String transport;
  final String host;
  final int port;
  final int cutPort;
  final String caFile;
  final String tag;
  final Map<String, Deed> steps = new LinkedHashMap<>();
  Peer peer;

  interface Deed {
    String run() throws Exception;
  }

  /** One connection. */
  final class Peer {
    final StompConnection link = new StompConnection();

    Peer() throws Exception {
      link.open(socket());
      link.setVersion("1.1");
      HashMap<String, String> headers = new HashMap<>();
      headers.put("accept-version", "1.1");
      headers.put("host", host);
      headers.put("heart-beat", BEATS_MS + "," + BEATS_MS);
      link.connect(headers);
    }

    Socket socket() throws Exception {
      if (!transport.equals("tls")) {
        return new Socket(host, port);
      }
      KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
      trusted.load(null, null);
      try (FileInputStream file = new FileInputStream(caFile)) {
        var certificate = CertificateFactory.getInstance("X.509").generateCertificate(file);
        trusted.setCertificateEntry("ca", certificate);
      }
      var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      managers.init(trusted);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(null, managers.getTrustManagers(), null);
      SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(host, port);
      SSLParameters parameters = socket.getSSLParameters();
      parameters.setEndpointIdentificationAlgorithm("HTTPS");
      socket.setSSLParameters(parameters);
      return socket;
    }

    void subscribe(String destination, String id, String ack) throws Exception {
      link.subscribe(destination, ack, headers("id", id));
    }

    void unsubscribe(String destination, String id) throws Exception {
      link.unsubscribe(destination, headers("id", id));
    }

    void send(String destination, String body, String... more) throws Exception {
      HashMap<String, String> all = headers(more);
      String transaction = all.remove("transaction");
      link.send(destination, body, transaction, all);
    }

    StompFrame get() throws Exception {
      StompFrame frame = link.receive(PATIENCE_MS);
      expect(frame.getAction(), "MESSAGE");
      return frame;
    }

    List<StompFrame> take(String... bodies) throws Exception {
      List<StompFrame> frames = new ArrayList<>();
      for (String wanted : bodies) {
        StompFrame frame = get();
        expect(new String(frame.getContent(), StandardCharsets.UTF_8), wanted);
        frames.add(frame);
      }
      return frames;
    }

    /** Its ack() leaves out the header subscription, which STOMP 1.1 asks for. */
    void answer(String command, StompFrame message) throws Exception {
      Map<String, String> of = message.getHeaders();
      var headers = headers(
          "message-id", of.get("message-id"), "subscription", of.get("subscription"));
      link.sendFrame(new StompFrame(command, headers).format());
    }

    String fill(String name, String... bodies) throws Exception {
      String destination = "/queue/" + tag + "." + name;
      for (String body : bodies) {
        send(destination, body);
      }
      return destination;
    }
  }

  ActiveMqStomp(String[] told) {
    transport = told[0];
    host = told[1];
    port = Integer.parseInt(told[2]);
    cutPort = Integer.parseInt(told[3]);
    caFile = told[4];
    tag = told[5];
    steps.put("connect", () -> {
      peer = new Peer();
      return "STOMP " + peer.link.getVersion();
    });
    steps.put("heart-beat", this::heartBeat);
    steps.put("topic", this::topic);
    steps.put("together", this::together);
    steps.put("ack-auto", this::ackAuto);
    steps.put("ack-client", () -> ack("client", "c"));
    steps.put("ack-client-individual", () -> ack("client-individual", "a", "c"));
    steps.put("nack", this::nack);
    steps.put("commit", this::commit);
    steps.put("abort", this::abort);
    steps.put("receipt", this::receipt);
    steps.put("reply", this::reply);
    steps.put("wildcard", this::wildcard);
    steps.put("binary", this::binary);
    steps.put("reconnect", this::reconnect);
  }

  String heartBeat() throws Exception {
    int beats = 0;
    long end = System.nanoTime() + IDLE_MS * 1_000_000L;
    // Its receive() passes over heart-beats and waits on, so they are read past it.
    peer.link.getStompSocket().setSoTimeout(BEATS_MS / 3);
    while (System.nanoTime() < end) {
      peer.link.keepAlive();
      try {
        expect("" + peer.link.getStompSocket().getInputStream().read(), "" + (int) '\n');
        beats += 1;
      } catch (SocketTimeoutException nothing) {
        continue;
      }
    }
    if (beats < 2) {
      throw new IOException(beats + " heart-beats came in " + IDLE_MS + " ms");
    }
    topic();
    return "keepAlive() by the program";
  }

  String topic() throws Exception {
    String destination = "/topic/" + tag + ".news";
    peer.subscribe(destination, "topic", "auto");
    peer.send(destination, "Tee: 5 €", "colour", "green");
    StompFrame frame = peer.take("Tee: 5 €").get(0);
    expect(frame.getHeaders().get("colour"), "green");
    expect(frame.getHeaders().get("destination"), destination);
    peer.unsubscribe(destination, "topic");
    return "";
  }

  /** Frames that come in one segment: they wait, and are sent in one turn. */
  String together() throws Exception {
    String[] bodies = new String[TOGETHER];
    for (int i = 0; i < TOGETHER; i++) {
      bodies[i] = "m" + i;
    }
    String destination = peer.fill("together", bodies);
    peer.subscribe(destination, "together", "auto");
    peer.take(bodies);
    peer.unsubscribe(destination, "together");
    return "";
  }

  String ackAuto() throws Exception {
    String destination = peer.fill("auto", "a", "b");
    peer.subscribe(destination, "auto-1", "auto");
    peer.take("a", "b");
    peer.unsubscribe(destination, "auto-1");
    peer.fill("auto", "c");
    peer.subscribe(destination, "auto-2", "auto");
    peer.take("c");
    peer.unsubscribe(destination, "auto-2");
    return "";
  }

  String ack(String mode, String... left) throws Exception {
    String destination = peer.fill(mode, "a", "b", "c");
    peer.subscribe(destination, mode + "-1", mode);
    peer.answer("ACK", peer.take("a", "b", "c").get(1));
    peer.unsubscribe(destination, mode + "-1");
    peer.subscribe(destination, mode + "-2", "auto");
    for (StompFrame frame : peer.take(left)) {
      expect(frame.getHeaders().get("redelivered"), "true");
    }
    peer.unsubscribe(destination, mode + "-2");
    return "frames of the program";
  }

  String nack() throws Exception {
    String destination = peer.fill("nack", "a");
    peer.subscribe(destination, "nack", "client-individual");
    peer.answer("NACK", peer.take("a").get(0));
    StompFrame again = peer.take("a").get(0);
    expect(again.getHeaders().get("redelivered"), "true");
    peer.answer("ACK", again);
    peer.unsubscribe(destination, "nack");
    return "frames of the program";
  }

  String commit() throws Exception {
    String destination = "/queue/" + tag + ".commit";
    peer.subscribe(destination, "commit", "auto");
    peer.link.begin("t1");
    peer.send(destination, "second", "transaction", "t1");
    peer.send(destination, "first");
    peer.take("first");
    peer.link.commit("t1");
    peer.take("second");
    peer.unsubscribe(destination, "commit");
    return "";
  }

  String abort() throws Exception {
    String destination = "/queue/" + tag + ".abort";
    peer.subscribe(destination, "abort", "auto");
    peer.link.begin("t2");
    peer.send(destination, "never", "transaction", "t2");
    peer.link.abort("t2");
    peer.send(destination, "after");
    peer.take("after");
    peer.unsubscribe(destination, "abort");
    return "";
  }

  String receipt() throws Exception {
    peer.send("/topic/" + tag + ".receipt", "x", "receipt", "r1");
    StompFrame frame = peer.link.receive(PATIENCE_MS);
    expect(frame.getAction(), "RECEIPT");
    expect(frame.getHeaders().get("receipt-id"), "r1");
    return "";
  }

  String reply() throws Exception {
    Peer server = new Peer();
    String destination = "/queue/" + tag + ".ask";
    server.subscribe(destination, "asked", "auto");
    peer.subscribe("/temp-queue/answers", "answers", "auto");
    peer.send(destination, "?", "reply-to", "/temp-queue/answers");
    server.send(server.get().getHeaders().get("reply-to"), "!");
    peer.take("!");
    peer.unsubscribe("/temp-queue/answers", "answers");
    server.link.disconnect();
    return "";
  }

  String wildcard() throws Exception {
    peer.subscribe("/topic/" + tag + ".wild.*", "wild", "auto");
    peer.send("/topic/" + tag + ".tame.cat", "no");
    peer.send("/topic/" + tag + ".wild.cat", "yes");
    StompFrame frame = peer.take("yes").get(0);
    expect(frame.getHeaders().get("destination"), "/topic/" + tag + ".wild.cat");
    peer.unsubscribe("/topic/" + tag + ".wild.*", "wild");
    return "";
  }

  String binary() throws Exception {
    byte[] body = new byte[1_000_000];
    for (int i = 0; i < body.length; i++) {
      body[i] = (byte) (i * 7 + i / 256);
    }
    String destination = "/queue/" + tag + ".binary";
    peer.subscribe(destination, "binary", "auto");
    String head = "SEND\ndestination:" + destination + "\ncontent-length:" + body.length + "\n\n";
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    all.write(body);
    all.write(0);
    peer.link.sendFrame(head, all.toByteArray());
    byte[] found = peer.get().getContent();
    expect("" + found.length, "" + body.length);
    expect(sha256(found), sha256(body));
    peer.unsubscribe(destination, "binary");
    return "SHA-256 " + sha256(found).substring(0, 16);
  }

  String reconnect() throws Exception {
    String destination = "/topic/" + tag + ".back";
    peer.subscribe(destination, "back", "auto");
    try (Socket cut = new Socket(host, cutPort)) {
      cut.getInputStream().read();
    }
    try {
      peer.link.receive(PATIENCE_MS);
      throw new IllegalStateException("the link was not cut");
    } catch (SocketTimeoutException error) {
      throw error;
    } catch (IOException lost) {
      peer = new Peer();
    }
    peer.subscribe(destination, "back", "auto");
    peer.send(destination, "again");
    peer.take("again");
    return "a new object by the program";
  }

  static HashMap<String, String> headers(String... pairs) {
    HashMap<String, String> made = new HashMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      made.put(pairs[i], pairs[i + 1]);
    }
    return made;
  }

  static String sha256(byte[] body) throws Exception {
    return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
  }

  static void expect(String found, String wanted) {
    if (!wanted.equals(found)) {
      throw new IllegalStateException("'" + found + "' came, not '" + wanted + "'");
    }
  }

  static void say(String... pairs) {
    List<String> parts = new ArrayList<>();
    for (int i = 0; i < pairs.length; i += 2) {
      parts.add(quoted(pairs[i]) + ": " + quoted(pairs[i + 1]));
    }
    System.out.println("{" + String.join(", ", parts) + "}");
  }

  static String quoted(String text) {
    String safe = text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ");
    return '"' + safe + '"';
  }

  int run() {
    String version = System.getProperty("activemq.version");
    String on = System.getProperty("java.version");
    say("client", "StompConnection", "version", version, "on", on);
    String wanted = System.getenv("INTEROP_STEPS");
    if (wanted != null) {
      steps.keySet().retainAll(List.of(wanted.split(",")));
    }
    for (Map.Entry<String, Deed> step : steps.entrySet()) {
      String detail;
      try {
        detail = step.getValue().run();
      } catch (Exception error) {
        // After a failure nothing is known of the connection: the rest would say nothing.
        say("step", step.getKey(), "result", "failed", "detail", error.toString());
        return 1;
      }
      say("step", step.getKey(), "result", "ok", "detail", detail);
    }
    try {
      peer.link.disconnect();
    } catch (Exception error) {
      say("step", "leave", "result", "failed", "detail", error.toString());
      return 1;
    }
    return 0;
  }

  public static void main(String[] told) {
    System.exit(new ActiveMqStomp(told).run());
  }
}
