# Perl's Net::Stomp, over TCP and TLS; the same steps as in _scenario.py.

use strict;
use warnings;
use utf8;
use Digest::SHA qw(sha256_hex);
use Encode qw(encode_utf8);
use IO::Socket::INET;
use JSON::PP;
use Net::Stomp;

my ($TRANSPORT, $HOST, $PORT, $CUT_PORT, $CA_FILE, $TAG) = @ARGV;
my $PATIENCE_S = 20;
my $TOGETHER = 20;
my $BINARY = pack 'C*', map { ($_ * 7 + int($_ / 256)) % 256 } 0 .. 999_999;
$| = 1;

sub say_ {
    print JSON::PP->new->canonical->utf8->encode({@_}), "\n";
}

sub expect {
    my ($found, $wanted) = @_;
    die "'$found' came, not '$wanted'\n" unless $found eq $wanted;
}

# A step that the library has no means for.
package NotSupported {
    sub new { my ($class, $why) = @_; return bless { why => $why }, $class }
}

# One connection.
package Peer {
    sub new {
        my ($class) = @_;
        my %server = (hostname => $HOST, port => $PORT);
        if ($TRANSPORT eq 'tls') {
            $server{ssl} = 1;
            $server{ssl_options} = { SSL_ca_file => $CA_FILE, SSL_verify_mode => 1 };
        }
        my $stomp = Net::Stomp->new({
            %server, timeout => $PATIENCE_S, connect_delay => 0, reconnect_attempts => 5,
        });
        my $frame = $stomp->connect({ 'accept-version' => '1.0,1.1', host => $HOST });
        die "no CONNECTED came\n" unless $frame && $frame->command eq 'CONNECTED';
        return bless { stomp => $stomp, version => $frame->headers->{version} }, $class;
    }

    sub subscribe {
        my ($self, $destination, $id, $ack) = @_;
        $self->{stomp}->subscribe(
            { destination => $destination, id => $id, ack => $ack // 'auto' });
    }

    sub unsubscribe {
        my ($self, $id) = @_;
        $self->{stomp}->unsubscribe({ id => $id });
    }

    sub send {
        my ($self, $destination, $body, %headers) = @_;
        # It counts no bytes unless told that they are bytes.
        $self->{stomp}->send(
            { destination => $destination, body => $body, bytes_message => 1, %headers });
    }

    # A frame of a kind for which it has no method.
    sub frame {
        my ($self, $command, %headers) = @_;
        $self->{stomp}->send_frame(
            Net::Stomp::Frame->new({ command => $command, headers => {%headers} }));
    }

    sub get {
        my ($self) = @_;
        my $frame = $self->{stomp}->receive_frame or die "no message came\n";
        main::expect($frame->command, 'MESSAGE');
        return $frame;
    }

    sub take {
        my ($self, @bodies) = @_;
        return map { my $frame = $self->get; main::expect($frame->body, $_); $frame } @bodies;
    }

    sub ack {
        my ($self, $frame) = @_;
        $self->{stomp}->ack({ frame => $frame });
    }

    sub nack {
        my ($self, $frame) = @_;
        $self->{stomp}->nack({ frame => $frame });
    }
}

package main;

my $peer;

sub fill {
    my ($name, @bodies) = @_;
    my $destination = "/queue/$TAG.$name";
    $peer->send($destination, $_) for @bodies;
    return $destination;
}

sub topic {
    my $destination = "/topic/$TAG.news";
    $peer->subscribe($destination, 'topic');
    $peer->send($destination, encode_utf8('Tee: 5 €'), colour => 'green');
    my $frame = $peer->get;
    expect($frame->body, encode_utf8('Tee: 5 €'));
    expect($frame->headers->{colour}, 'green');
    expect($frame->headers->{destination}, $destination);
    $peer->unsubscribe('topic');
    return '';
}

sub ack_mode {
    my ($mode, @left) = @_;
    my $destination = fill($mode, 'a', 'b', 'c');
    $peer->subscribe($destination, "$mode-1", $mode);
    my @frames = $peer->take('a', 'b', 'c');
    $peer->ack($frames[1]);
    $peer->unsubscribe("$mode-1");
    $peer->subscribe($destination, "$mode-2");
    expect($_->headers->{redelivered}, 'true') for $peer->take(@left);
    $peer->unsubscribe("$mode-2");
    return '';
}

sub reply {
    my $server = Peer->new;
    my $destination = "/queue/$TAG.ask";
    $server->subscribe($destination, 'asked');
    $peer->subscribe('/temp-queue/answers', 'answers');
    $peer->send($destination, '?', 'reply-to' => '/temp-queue/answers');
    my $where = $server->get->headers->{'reply-to'};
    $server->send($where, '!');
    $peer->take('!');
    $peer->unsubscribe('answers');
    $server->{stomp}->disconnect;
    return '';
}

my @STEPS = (
    connect => sub { $peer = Peer->new; return "STOMP $peer->{version}" },
    'heart-beat' => sub { die NotSupported->new('it has no thread or timer that could send them') },
    topic => \&topic,
    # Frames that come in one segment: they wait, and are sent in one turn.
    together => sub {
        my @bodies = map { "m$_" } 0 .. $TOGETHER - 1;
        $peer->subscribe(fill('together', @bodies), 'together');
        $peer->take(@bodies);
        $peer->unsubscribe('together');
        return '';
    },
    'ack-auto' => sub {
        my $destination = fill('auto', 'a', 'b');
        $peer->subscribe($destination, 'auto-1');
        $peer->take('a', 'b');
        $peer->unsubscribe('auto-1');
        fill('auto', 'c');
        $peer->subscribe($destination, 'auto-2');
        $peer->take('c');
        $peer->unsubscribe('auto-2');
        return '';
    },
    'ack-client' => sub { return ack_mode('client', 'c') },
    'ack-client-individual' => sub { return ack_mode('client-individual', 'a', 'c') },
    nack => sub {
        $peer->subscribe(fill('nack', 'a'), 'nack', 'client-individual');
        $peer->nack($peer->take('a'));
        my ($again) = $peer->take('a');
        expect($again->headers->{redelivered}, 'true');
        $peer->ack($again);
        $peer->unsubscribe('nack');
        return '';
    },
    # Its own send_transactional() commits at once; other transactions are frames of the program's.
    commit => sub {
        my $destination = "/queue/$TAG.commit";
        $peer->subscribe($destination, 'commit');
        $peer->frame('BEGIN', transaction => 't1');
        $peer->send($destination, 'second', transaction => 't1');
        $peer->send($destination, 'first');
        $peer->take('first');
        $peer->frame('COMMIT', transaction => 't1');
        $peer->take('second');
        $peer->unsubscribe('commit');
        my %told = (destination => "/topic/$TAG.receipt", body => 'x');
        $peer->{stomp}->send_transactional({%told}) or die "send_transactional() failed\n";
        return 'send_transactional(), and frames of the program';
    },
    abort => sub {
        my $destination = "/queue/$TAG.abort";
        $peer->subscribe($destination, 'abort');
        $peer->frame('BEGIN', transaction => 't2');
        $peer->send($destination, 'never', transaction => 't2');
        $peer->frame('ABORT', transaction => 't2');
        $peer->send($destination, 'after');
        $peer->take('after');
        $peer->unsubscribe('abort');
        return 'frames of the program';
    },
    receipt => sub {
        my %told = (destination => "/topic/$TAG.receipt", body => 'x');
        $peer->{stomp}->send_with_receipt({%told}) or die "no RECEIPT came\n";
        return '';
    },
    reply => \&reply,
    wildcard => sub {
        $peer->subscribe("/topic/$TAG.wild.*", 'wild');
        $peer->send("/topic/$TAG.tame.cat", 'no');
        $peer->send("/topic/$TAG.wild.cat", 'yes');
        my ($frame) = $peer->take('yes');
        expect($frame->headers->{destination}, "/topic/$TAG.wild.cat");
        $peer->unsubscribe('wild');
        return '';
    },
    binary => sub {
        my $destination = "/queue/$TAG.binary";
        $peer->subscribe($destination, 'binary');
        $peer->send($destination, $BINARY, 'content-type' => 'application/octet-stream');
        my $body = $peer->get->body;
        expect(length $body, length $BINARY);
        expect(sha256_hex($body), sha256_hex($BINARY));
        $peer->unsubscribe('binary');
        return 'SHA-256 ' . substr sha256_hex($body), 0, 16;
    },
    reconnect => sub {
        my $destination = "/topic/$TAG.back";
        $peer->subscribe($destination, 'back');
        my $link = IO::Socket::INET->new(PeerAddr => $HOST, PeerPort => $CUT_PORT)
            or die "no cut: $!\n";
        $link->sysread(my $nothing, 1);
        my $before = $peer->{stomp}->session_id;
        # It notices the end here or at the next frame; then it connects and subscribes again first.
        die "the link was not cut\n" if $peer->{stomp}->receive_frame({ timeout => 1 });
        $peer->send($destination, 'again');
        $peer->take('again');
        die "it is the same session\n" if $peer->{stomp}->session_id eq $before;
        return 'automatic, with its subscriptions';
    },
);

my $on = sprintf '%vd', $^V;
say_(client => 'Net::Stomp', version => "$Net::Stomp::VERSION", on => $on);
my %wanted = map { $_ => 1 } split /,/, $ENV{INTEROP_STEPS} // '';
while (my ($step, $deed) = splice @STEPS, 0, 2) {
    next if %wanted && !$wanted{$step};
    my $detail = eval { $deed->() };
    if (my $error = $@) {
        if (ref $error eq 'NotSupported') {
            say_(step => $step, result => 'not supported by the library', detail => $error->{why});
            next;
        }
        # After a failure nothing is known of the connection: the rest would say nothing.
        chomp $error;
        say_(step => $step, result => 'failed', detail => "$error");
        exit 1;
    }
    say_(step => $step, result => 'ok', detail => $detail);
}
$peer->{stomp}->disconnect;
