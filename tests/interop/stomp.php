<?php
// PHP's extension stomp, over TCP; the same steps as in _scenario.py.

declare(strict_types=1);

[, $TRANSPORT, $HOST, $PORT, $CUT_PORT, $CA_FILE, $TAG] = $argv;
const PATIENCE_S = 20;
const TOGETHER = 20;

final class NotSupported extends Exception
{
}

function say(array $line): void
{
    echo json_encode($line, JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES), "\n";
}

function expect(mixed $found, mixed $wanted): void
{
    if ($found !== $wanted) {
        throw new Exception(var_export($found, true) . ' came, not ' . var_export($wanted, true));
    }
}

function check(bool $is_done): void
{
    if (!$is_done) {
        throw new Exception('the library says no');
    }
}

// One connection.
final class Peer
{
    public Stomp $stomp;

    public function __construct()
    {
        global $TRANSPORT, $HOST, $PORT;
        $scheme = $TRANSPORT === 'tls' ? 'ssl' : 'tcp';
        $this->stomp = new Stomp("$scheme://$HOST:$PORT", '', '', ['host' => $HOST]);
        $this->stomp->setReadTimeout(PATIENCE_S);
    }

    public function subscribe(string $destination, string $id, string $ack = 'auto'): void
    {
        check($this->stomp->subscribe($destination, ['id' => $id, 'ack' => $ack]));
    }

    public function unsubscribe(string $destination, string $id): void
    {
        check($this->stomp->unsubscribe($destination, ['id' => $id]));
    }

    public function send(string $destination, string $body, array $headers = []): void
    {
        check($this->stomp->send($destination, $body, $headers));
    }

    public function get(): StompFrame
    {
        $frame = $this->stomp->readFrame();
        if ($frame === false) {
            throw new Exception('no message came: ' . var_export($this->stomp->error(), true));
        }
        expect($frame->command, 'MESSAGE');
        return $frame;
    }

    public function take(string ...$bodies): array
    {
        $frames = [];
        foreach ($bodies as $wanted) {
            $frames[] = $this->get();
            expect(end($frames)->body, $wanted);
        }
        return $frames;
    }

    public function fill(string $name, string ...$bodies): string
    {
        global $TAG;
        foreach ($bodies as $body) {
            $this->send("/queue/$TAG.$name", $body);
        }
        return "/queue/$TAG.$name";
    }
}

function binary(): string
{
    $body = '';
    for ($i = 0; $i < 1_000_000; $i++) {
        $body .= chr(($i * 7 + intdiv($i, 256)) % 256);
    }
    return $body;
}

function ack(Peer $peer, string $mode, string ...$left): void
{
    global $TAG;
    $destination = "/queue/$TAG.$mode";
    $peer->subscribe($destination, "$mode-1", $mode);
    $frames = [];
    foreach (['a', 'b', 'c'] as $body) {
        $peer->send($destination, $body);
        [$frames[]] = $peer->take($body);
    }
    check($peer->stomp->ack($frames[1]));
    $peer->unsubscribe($destination, "$mode-1");
    $one = ['id' => "$mode-2", 'ack' => 'client-individual', 'prefetch-count' => '1'];
    check($peer->stomp->subscribe($destination, $one));
    foreach ($left as $body) {
        [$frame] = $peer->take($body);
        expect($frame->headers['redelivered'], 'true');
        check($peer->stomp->ack($frame));
    }
    $peer->unsubscribe($destination, "$mode-2");
}

function together(string $tag): void
{
    $peer = new Peer();
    $bodies = array_map(fn (int $i): string => "m$i", range(0, TOGETHER - 1));
    $destination = $peer->fill('together', ...$bodies);
    $peer->subscribe($destination, 'together');
    $peer->take(...$bodies);
}

$peer = null;
$steps = [
    'connect' => function () use (&$peer): string {
        $peer = new Peer();
        return 'STOMP 1.0';
    },
    'heart-beat' => fn () => throw new NotSupported('it uses STOMP 1.0, which has no heart-beats'),
    'topic' => function () use (&$peer, $TAG): void {
        $destination = "/topic/$TAG.news";
        $peer->subscribe($destination, 'topic');
        $peer->send($destination, 'Tee: 5 €', ['colour' => 'green']);
        [$frame] = $peer->take('Tee: 5 €');
        expect($frame->headers['colour'], 'green');
        expect($frame->headers['destination'], $destination);
        $peer->unsubscribe($destination, 'topic');
    },
    'together' => fn () => together($TAG),
    'ack-auto' => function () use (&$peer): void {
        $destination = $peer->fill('auto', 'a');
        $peer->subscribe($destination, 'auto-1', 'auto');
        $peer->take('a');
        $peer->unsubscribe($destination, 'auto-1');
        $peer->fill('auto', 'c');
        $peer->subscribe($destination, 'auto-2', 'auto');
        $peer->take('c');
        $peer->unsubscribe($destination, 'auto-2');
    },
    'ack-client' => function () use (&$peer): void {
        ack($peer, 'client', 'c');
    },
    'ack-client-individual' => function () use (&$peer): void {
        ack($peer, 'client-individual', 'a', 'c');
    },
    'nack' => fn () => throw new NotSupported('it has no method for NACK'),
    'commit' => function () use (&$peer, $TAG): void {
        $destination = "/queue/$TAG.commit";
        $peer->subscribe($destination, 'commit');
        check($peer->stomp->begin('t1'));
        $peer->send($destination, 'second', ['transaction' => 't1']);
        $peer->send($destination, 'first');
        $peer->take('first');
        check($peer->stomp->commit('t1'));
        $peer->take('second');
        $peer->unsubscribe($destination, 'commit');
    },
    'abort' => function () use (&$peer, $TAG): void {
        $destination = "/queue/$TAG.abort";
        $peer->subscribe($destination, 'abort');
        check($peer->stomp->begin('t2'));
        $peer->send($destination, 'never', ['transaction' => 't2']);
        check($peer->stomp->abort('t2'));
        $peer->send($destination, 'after');
        $peer->take('after');
        $peer->unsubscribe($destination, 'abort');
    },
    // send() itself waits for the RECEIPT, and tells whether it came.
    'receipt' => function () use (&$peer, $TAG): void {
        $peer->send("/topic/$TAG.receipt", 'x', ['receipt' => 'r1']);
    },
    'reply' => function () use (&$peer, $TAG): void {
        $server = new Peer();
        $destination = "/queue/$TAG.ask";
        $server->subscribe($destination, 'asked');
        $peer->subscribe('/temp-queue/answers', 'answers');
        $peer->send($destination, '?', ['reply-to' => '/temp-queue/answers']);
        $server->send($server->get()->headers['reply-to'], '!');
        $peer->take('!');
        $peer->unsubscribe('/temp-queue/answers', 'answers');
    },
    'wildcard' => function () use (&$peer, $TAG): void {
        $peer->subscribe("/topic/$TAG.wild.*", 'wild');
        $peer->send("/topic/$TAG.tame.cat", 'no');
        $peer->send("/topic/$TAG.wild.cat", 'yes');
        [$frame] = $peer->take('yes');
        expect($frame->headers['destination'], "/topic/$TAG.wild.cat");
        $peer->unsubscribe("/topic/$TAG.wild.*", 'wild');
    },
    'binary' => function () use (&$peer, $TAG): string {
        $destination = "/queue/$TAG.binary";
        $body = binary();
        $peer->subscribe($destination, 'binary');
        $peer->send($destination, $body, ['content-type' => 'application/octet-stream']);
        $found = $peer->get()->body;
        expect(strlen($found), strlen($body));
        expect(hash('sha256', $found), hash('sha256', $body));
        $peer->unsubscribe($destination, 'binary');
        return 'SHA-256 ' . substr(hash('sha256', $found), 0, 16);
    },
    'reconnect' => function () use (&$peer, $TAG, $HOST, $CUT_PORT): string {
        $destination = "/topic/$TAG.back";
        $peer->subscribe($destination, 'back');
        $link = stream_socket_client("tcp://$HOST:$CUT_PORT");
        stream_get_contents($link);
        try {
            $is_lost = $peer->stomp->readFrame() === false;
        } catch (StompException) {
            $is_lost = true;
        }
        expect($is_lost, true);
        $peer = new Peer();
        $peer->subscribe($destination, 'back');
        $peer->send($destination, 'again');
        $peer->take('again');
        return 'a new object by the program';
    },
];

say(['client' => 'php-stomp', 'version' => phpversion('stomp'), 'on' => PHP_VERSION]);
$wanted = getenv('INTEROP_STEPS') ? explode(',', getenv('INTEROP_STEPS')) : array_keys($steps);
foreach (array_intersect_key($steps, array_flip($wanted)) as $step => $deed) {
    try {
        say(['step' => $step, 'result' => 'ok', 'detail' => $deed() ?? '']);
    } catch (NotSupported $why) {
        $result = 'not supported by the library';
        say(['step' => $step, 'result' => $result, 'detail' => $why->getMessage()]);
    } catch (Throwable $error) {
        // After a failure nothing is known of the connection: the rest would say nothing.
        say(['step' => $step, 'result' => 'failed', 'detail' => $error->getMessage()]);
        exit(1);
    }
}
