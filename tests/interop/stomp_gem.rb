# Ruby's gem stomp, over TCP and TLS; the same steps as in _scenario.py.

require "digest"
require "json"
require "socket"
require "timeout"
require "stomp"

TRANSPORT, HOST, PORT, CUT_PORT, CA_FILE, TAG = ARGV
PATIENCE_S = 20
BEATS_MS = 300
IDLE_S = 2.0
TOGETHER = 20
BINARY = (0...1_000_000).map { |i| (i * 7 + i / 256) % 256 }.pack("C*")

$stdout.sync = true

def say(line)
  puts JSON.generate(line)
end

def expect(found, wanted)
  raise "#{found.inspect} came, not #{wanted.inspect}" unless found == wanted
end

def within(what, &deed)
  Timeout.timeout(PATIENCE_S, RuntimeError, "never so: #{what}", &deed)
end

# One connection, and what came to it.
class Peer
  attr_reader :client, :messages

  def initialize
    @messages = Queue.new
    server = { host: HOST, port: Integer(PORT), login: "", passcode: "" }
    server[:ssl] = Stomp::SSLParams.new(ts_files: CA_FILE) if TRANSPORT == "tls"
    headers = { "accept-version" => "1.2", "host" => HOST, "heart-beat" => "#{BEATS_MS},#{BEATS_MS}" }
    within("CONNECTED") do
      @client = Stomp::Client.new(
        hosts: [server], reliable: true, connect_headers: headers,
        initial_reconnect_delay: 0.05, max_reconnect_attempts: 20
      )
    end
  end

  def subscribe(destination, id, ack = "auto")
    @client.subscribe(destination, id: id, ack: ack) { |message| @messages << message }
  end

  def unsubscribe(destination, id)
    @client.unsubscribe(destination, id: id)
  end

  def send(destination, body, headers = {})
    @client.publish(destination, body, headers)
  end

  def send_and_wait(destination, body)
    came = Queue.new
    @client.publish(destination, body) { |receipt| came << receipt }
    within("RECEIPT") { came.pop }
  end

  def get
    within("a message") { @messages.pop }
  end

  def take(*bodies)
    bodies.map { |wanted| get.tap { |message| expect(message.body, wanted) } }
  end

  def leave
    @client.close
  end
end

def fill(peer, name, *bodies)
  destination = "/queue/#{TAG}.#{name}"
  bodies.each { |body| peer.send(destination, body) }
  destination
end

def topic(peer)
  destination = "/topic/#{TAG}.news"
  peer.subscribe(destination, "topic")
  peer.send(destination, "Tee: 5 €", "colour" => "green")
  message = peer.get
  expect(message.body.dup.force_encoding("UTF-8"), "Tee: 5 €")
  expect(message.headers["colour"], "green")
  expect(message.headers["destination"], destination)
  peer.unsubscribe(destination, "topic")
end

def ack(peer, mode, *left)
  destination = fill(peer, mode, "a", "b", "c")
  peer.subscribe(destination, "#{mode}-1", mode)
  peer.client.ack(peer.take("a", "b", "c")[1])
  peer.unsubscribe(destination, "#{mode}-1")
  peer.subscribe(destination, "#{mode}-2")
  peer.take(*left).each { |message| expect(message.headers["redelivered"], "true") }
  peer.unsubscribe(destination, "#{mode}-2")
end

peer = nil
STEPS = {
  "connect" => lambda {
    peer = Peer.new
    "STOMP #{peer.client.protocol}"
  },
  "heart-beat" => lambda {
    # Those that come are not counted while its thread waits for frames.
    before = peer.client.hbsend_count
    sleep IDLE_S
    beats = peer.client.hbsend_count - before
    raise "#{beats} heart-beats were sent in #{IDLE_S} s" if beats < 2

    topic(peer)
  },
  "topic" => -> { topic(peer) },
  # Frames that come in one segment: they wait, and are sent in one turn.
  "together" => lambda {
    bodies = (0...TOGETHER).map { |i| "m#{i}" }
    destination = fill(peer, "together", *bodies)
    peer.subscribe(destination, "together")
    peer.take(*bodies)
    peer.unsubscribe(destination, "together")
  },
  "ack-auto" => lambda {
    destination = fill(peer, "auto", "a", "b")
    peer.subscribe(destination, "auto-1", "auto")
    peer.take("a", "b")
    peer.unsubscribe(destination, "auto-1")
    fill(peer, "auto", "c")
    peer.subscribe(destination, "auto-2", "auto")
    peer.take("c")
    peer.unsubscribe(destination, "auto-2")
  },
  "ack-client" => -> { ack(peer, "client", "c") },
  "ack-client-individual" => -> { ack(peer, "client-individual", "a", "c") },
  "nack" => lambda {
    destination = fill(peer, "nack", "a")
    peer.subscribe(destination, "nack", "client-individual")
    peer.client.nack(peer.take("a")[0])
    again = peer.take("a")[0]
    expect(again.headers["redelivered"], "true")
    peer.client.ack(again)
    peer.unsubscribe(destination, "nack")
  },
  "commit" => lambda {
    destination = "/queue/#{TAG}.commit"
    peer.subscribe(destination, "commit")
    peer.client.begin("t1")
    peer.send(destination, "second", "transaction" => "t1")
    peer.send(destination, "first")
    peer.take("first")
    peer.client.commit("t1")
    peer.take("second")
    peer.unsubscribe(destination, "commit")
  },
  "abort" => lambda {
    destination = "/queue/#{TAG}.abort"
    peer.subscribe(destination, "abort")
    peer.client.begin("t2")
    peer.send(destination, "never", "transaction" => "t2")
    peer.client.abort("t2")
    peer.send(destination, "after")
    peer.take("after")
    peer.unsubscribe(destination, "abort")
  },
  "receipt" => -> { peer.send_and_wait("/topic/#{TAG}.receipt", "") },
  "reply" => lambda {
    server = Peer.new
    destination = "/queue/#{TAG}.ask"
    server.subscribe(destination, "asked")
    peer.subscribe("/temp-queue/answers", "answers")
    peer.send(destination, "?", "reply-to" => "/temp-queue/answers")
    server.send(server.get.headers["reply-to"], "!")
    peer.take("!")
    peer.unsubscribe("/temp-queue/answers", "answers")
    server.leave
  },
  "wildcard" => lambda {
    pattern = "/topic/#{TAG}.wild.*"
    peer.subscribe(pattern, "wild")
    peer.send("/topic/#{TAG}.tame.cat", "no")
    peer.send("/topic/#{TAG}.wild.cat", "yes")
    expect(peer.take("yes")[0].headers["destination"], "/topic/#{TAG}.wild.cat")
    peer.unsubscribe(pattern, "wild")
  },
  "binary" => lambda {
    destination = "/queue/#{TAG}.binary"
    peer.subscribe(destination, "binary")
    peer.send(destination, BINARY, "content-type" => "application/octet-stream")
    body = peer.get.body
    expect(body.bytesize, BINARY.bytesize)
    expect(Digest::SHA256.hexdigest(body), Digest::SHA256.hexdigest(BINARY))
    peer.unsubscribe(destination, "binary")
    "SHA-256 #{Digest::SHA256.hexdigest(body)[0, 16]}"
  },
  "reconnect" => lambda {
    destination = "/topic/#{TAG}.back"
    peer.subscribe(destination, "back")
    peer.send_and_wait(destination, "")
    peer.get
    before = peer.client.connection_frame
    TCPSocket.open(HOST, CUT_PORT) { |link| link.read(1) }
    within("connected again") { sleep 0.02 while peer.client.connection_frame.equal?(before) }
    # The thread that reconnected subscribes again; the first message shows that it is done.
    within("subscribed again") do
      until peer.messages.size.positive?
        peer.send(destination, "again")
        sleep 0.05
      end
    end
    expect(peer.get.body, "again")
    "automatic, with its subscriptions"
  },
}.freeze

say(client: "stomp (gem)", version: Stomp::Version::STRING, on: RUBY_VERSION)
wanted = (ENV["INTEROP_STEPS"] || STEPS.keys.join(",")).split(",")
STEPS.slice(*wanted).each do |step, deed|
  detail = deed.call
  say(step: step, result: "ok", detail: detail.is_a?(String) ? detail : "")
rescue StandardError => e
  # After a failure nothing is known of the connection: the rest would say nothing.
  say(step: step, result: "failed", detail: "#{e.class}: #{e.message}")
  exit! 1
end
peer.leave
