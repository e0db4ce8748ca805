/*
 * The floor: a bare loop that moves the bytes of a fan-out, as the minimal cost of a broker.
 *
 * One thread, epoll, non-blocking sockets with TCP_NODELAY. It supports the STOMP 1.2 of the load
 * generator, without checks: CONNECT, SUBSCRIBE, SEND to subscribers, receipts; and SEND to a
 * queue, whose consumers get messages in turn, as many as they have acknowledged.
 *
 * It does what is cheapest for these loads. All SENDs of one read are encoded once, and the same
 * bytes go to every subscriber with the same id by one send(2) each. Bytes that a socket does not
 * take are copied into that subscriber's buffer, which grows by doubling, until EPOLLOUT. Nothing
 * is allocated for a message. MESSAGE and RECEIPT equal the broker's, except for the broker's boot
 * id, of the same length, within message-id.
 *
 * Its argument is a rest in microseconds before each round of work; the default is 0.
 * It prints its port on 127.0.0.1, and runs until it is killed.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_BYTES = 256 * 1024,             /* as in the broker */
    RUN = 8192,                          /* SENDs encoded together */
    WIRE_BYTES = READ_BYTES + RUN * 512, /* a run as MESSAGEs: a header block is shorter */
    NAME_BYTES = 128,
    DESTINATIONS = 1024,
    EVENTS = 512,
};
static const size_t MOST_BEHIND = 256u << 20; /* more than any window of the generator */

struct text {
    const char *at;
    size_t size;
};

struct connection {
    int file, is_broken, is_blocked;
    char id[NAME_BYTES]; /* of its only subscription */
    size_t id_size;
    struct destination *queue; /* the queue that it consumes from, or NULL */
    int acks;
    size_t credit; /* messages that it may receive from the queue */
    size_t have; /* bytes of an incomplete frame in in */
    char *in;
    size_t start, end, room; /* the unsent part of out */
    char *out;
};

struct destination {
    char name[NAME_BYTES];
    size_t name_size;
    struct connection **subscribers;
    size_t count, room;
    int is_queue;
    size_t next;              /* index of the next consumer in subscribers */
    size_t first, last, size; /* of bodies: sizes and bytes of waiting messages */
    char *bodies;
};

struct frame {
    struct text command, destination, id, receipt, ack, body;
    size_t prefetch;
};

static int poller;
static struct destination destinations[DESTINATIONS];
static size_t destination_count;
static unsigned long long message_id;

static struct destination *run_to; /* the destination of the collected SENDs */
static struct text run[RUN];
static size_t run_count;
static char wire[WIRE_BYTES];
static char answers[READ_BYTES]; /* to frames of the connection being read */
static size_t answers_size;

static int same(struct text text, const char *other, size_t size)
{
    return text.size == size && !memcmp(text.at, other, size);
}

static int is(struct text text, const char *word)
{
    return same(text, word, strlen(word));
}

static void *grown(void *block, size_t size)
{
    block = realloc(block, size);
    if (!block)
        errx(1, "no memory");
    return block;
}

static void watch(struct connection *c, int operation, unsigned events)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(poller, operation, c->file, &event))
        err(1, "epoll_ctl");
}

/* Send as much as possible, and return the number of bytes. A broken socket takes all of them. */
static size_t put(struct connection *c, const char *data, size_t size)
{
    ssize_t sent = c->is_broken ? (ssize_t)size : send(c->file, data, size, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    c->is_broken = c->is_broken || sent < 0;
    return c->is_broken ? size : (size_t)sent;
}

/* Make room for more bytes behind the unsent ones. */
static char *space(struct connection *c, size_t size)
{
    if (c->end + size > c->room) {
        memmove(c->out, c->out + c->start, c->end - c->start);
        c->end -= c->start;
        c->start = 0;
        /* Half of it stays free, so that moving is rare. */
        while ((c->end + size) * 2 > c->room)
            c->out = grown(c->out, c->room = c->room ? c->room * 2 : READ_BYTES);
        if (c->room > MOST_BEHIND)
            errx(1, "a subscriber is %zu bytes behind", c->end);
    }
    return c->out + c->end;
}

static void keep(struct connection *c, const char *data, size_t size)
{
    memcpy(space(c, size), data, size);
    c->end += size;
}

/* Turn EPOLLOUT on or off. */
static void block(struct connection *c, int is_blocked)
{
    if (is_blocked != c->is_blocked)
        watch(c, EPOLL_CTL_MOD, is_blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
    c->is_blocked = is_blocked;
}

static void say(struct connection *c, const char *data, size_t size)
{
    if (!size)
        return;
    /* Behind the unsent bytes, if any. */
    size_t sent = c->end ? 0 : put(c, data, size);
    if (sent < size) {
        keep(c, data + sent, size - sent);
        block(c, 1);
    }
}

static void flush(struct connection *c)
{
    c->start += put(c, c->out + c->start, c->end - c->start);
    if (c->start == c->end)
        c->start = c->end = 0;
    block(c, c->end > 0);
}

static char *add(char *to, const char *data, size_t size)
{
    memcpy(to, data, size);
    return to + size;
}

#define ADD(to, literal) add(to, literal, sizeof(literal) - 1)

static char *add_number(char *to, unsigned long long number)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    return add(to, digits + at, sizeof digits - at);
}

/* Encode the collected SENDs as MESSAGEs of a subscription into wire, and return their size. */
static size_t encode(const struct connection *c)
{
    char *to = wire;
    for (size_t i = 0; i < run_count; i++) {
        to = ADD(to, "MESSAGE\nsubscription:");
        to = add(to, c->id, c->id_size);
        to = ADD(to, "\nmessage-id:thefloor.1-");
        to = add_number(to, message_id + i + 1);
        to = ADD(to, "\ndestination:");
        to = add(to, run_to->name, run_to->name_size);
        to = ADD(to, "\ncontent-length:");
        to = add_number(to, run[i].size);
        to = ADD(to, "\n\n");
        to = add(to, run[i].at, run[i].size);
        *to++ = 0;
        *to++ = '\n';
    }
    return (size_t)(to - wire);
}

/* Keep the collected SENDs for the queue's consumers. */
static void enqueue(struct destination *d)
{
    for (size_t i = 0; i < run_count; i++) {
        size_t more = sizeof(size_t) + run[i].size;
        if (d->last + more > d->size) {
            memmove(d->bodies, d->bodies + d->first, d->last - d->first);
            d->last -= d->first;
            d->first = 0;
            while ((d->last + more) * 2 > d->size)
                d->bodies = grown(d->bodies, d->size = d->size ? d->size * 2 : READ_BYTES);
        }
        memcpy(d->bodies + d->last, &run[i].size, sizeof(size_t));
        memcpy(d->bodies + d->last + sizeof(size_t), run[i].at, run[i].size);
        d->last += more;
    }
    run_count = 0;
}

/* Return the consumer of the next message, or NULL. */
static struct connection *taker(struct destination *d)
{
    for (size_t tried = 0; tried < d->count; tried++) {
        struct connection *c = d->subscribers[d->next++ % d->count];
        if (c->credit)
            return c;
    }
    return NULL;
}

/* Deliver waiting messages to the consumers in turn, as their credit allows. */
static void hand_out(struct destination *d)
{
    struct connection *c;
    while (d->first < d->last && (c = taker(d))) {
        size_t size;
        memcpy(&size, d->bodies + d->first, sizeof size);
        char *from = space(c, size + 4 * NAME_BYTES), *to = from;
        to = ADD(to, "MESSAGE\nsubscription:");
        to = add(to, c->id, c->id_size);
        message_id++;
        if (c->acks) {
            to = ADD(to, "\nack:thefloor.1-");
            to = add_number(to, message_id);
            c->credit--;
        }
        to = ADD(to, "\nmessage-id:thefloor.1-");
        to = add_number(to, message_id);
        to = ADD(to, "\ndestination:");
        to = add(to, d->name, d->name_size);
        to = ADD(to, "\ncontent-length:");
        to = add_number(to, size);
        to = ADD(to, "\n\n");
        to = add(to, d->bodies + d->first + sizeof size, size);
        *to++ = 0;
        *to++ = '\n';
        c->end += (size_t)(to - from);
        d->first += sizeof size + size;
    }
    for (size_t i = 0; i < d->count; i++)
        if (d->subscribers[i]->end && !d->subscribers[i]->is_blocked)
            flush(d->subscribers[i]);
}

/* Send the collected SENDs to all subscribers. */
static void fan_out(void)
{
    const struct connection *encoded = NULL;
    size_t size = 0;
    if (run_count && run_to->is_queue) {
        enqueue(run_to);
        hand_out(run_to);
    }
    for (size_t i = 0; run_count && i < run_to->count; i++) {
        struct connection *c = run_to->subscribers[i];
        struct text id = {c->id, c->id_size};
        if (!encoded || !same(id, encoded->id, encoded->id_size)) {
            size = encode(c);
            encoded = c;
        }
        say(c, wire, size);
    }
    message_id += run_count;
    run_count = 0;
}

static struct destination *find(struct text name)
{
    for (size_t i = 0; i < destination_count; i++)
        if (same(name, destinations[i].name, destinations[i].name_size))
            return &destinations[i];
    if (destination_count == DESTINATIONS || name.size > NAME_BYTES)
        errx(1, "more than %d destinations, or too long a name", DESTINATIONS);
    struct destination *d = &destinations[destination_count++];
    memcpy(d->name, name.at, d->name_size = name.size);
    d->is_queue = name.size > 7 && !memcmp(name.at, "/queue/", 7);
    return d;
}

static void subscribe(struct connection *c, const struct frame *f)
{
    struct destination *d = find(f->destination);
    if (f->id.size > NAME_BYTES || c->id_size)
        errx(1, "too long an id, or more than one subscription of a connection");
    memcpy(c->id, f->id.at, c->id_size = f->id.size);
    if (d->count == d->room)
        d->subscribers = grown(d->subscribers, (d->room = d->room * 2 + 8) * sizeof c);
    d->subscribers[d->count++] = c;
    if (d->is_queue) {
        c->queue = d;
        c->acks = f->ack.size && !is(f->ack, "auto");
        c->credit = f->prefetch ? f->prefetch : 100;
    }
}

static void collect(const struct frame *f)
{
    if (run_count == RUN || !run_to || !same(f->destination, run_to->name, run_to->name_size)) {
        fan_out();
        run_to = find(f->destination);
    }
    run[run_count++] = f->body;
}

/* Send the RECEIPTs, after the effects of the SENDs. */
static void settle(struct connection *c)
{
    fan_out();
    if (c->queue)
        hand_out(c->queue);
    say(c, answers, answers_size);
    answers_size = 0;
}

/* Execute a frame. */
static void obey(struct connection *c, const struct frame *f)
{
    char *to = answers + answers_size;
    if (is(f->command, "SEND"))
        collect(f);
    else if (is(f->command, "SUBSCRIBE"))
        subscribe(c, f);
    else if (is(f->command, "ACK"))
        c->credit++;
    else if (is(f->command, "CONNECT"))
        to = ADD(to, "CONNECTED\nversion:1.2\nsession:1\nheart-beat:0,0\nserver:floor\n\n\0\n");
    else if (!is(f->command, "DISCONNECT") && !is(f->command, "BEGIN") && !is(f->command, "ABORT"))
        errx(1, "the floor does not know %.*s", (int)f->command.size, f->command.at);
    if (f->receipt.size > NAME_BYTES)
        errx(1, "too long a receipt");
    if (f->receipt.size) {
        to = ADD(to, "RECEIPT\nreceipt-id:");
        to = add(to, f->receipt.at, f->receipt.size);
        if (is(f->command, "SEND") && run_to->is_queue)
            to = ADD(to, "\nstored:memory");
        else if (is(f->command, "SEND")) {
            to = ADD(to, "\nmatched:");
            to = add_number(to, run_to->count);
        }
        to = ADD(to, "\n\n\0\n");
    }
    answers_size = (size_t)(to - answers);
    if (answers_size > sizeof answers - 2 * NAME_BYTES)
        settle(c);
}

/* Parse one frame, and return its size, or 0 while it is incomplete. */
static size_t parse(const char *data, size_t size, struct frame *f)
{
    const char *end = data + size, *at = data;
    long long length = -1;
    memset(f, 0, sizeof *f);
    for (const char *line = at, *stop;; line = at) {
        stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            return 0;
        at = stop + 1;
        size_t long_ = (size_t)(stop - line);
        if (!f->command.at)
            f->command = (struct text){line, long_};
        else if (!long_)
            break;
        else if (long_ > 15 && !memcmp(line, "content-length:", 15))
            length = strtoll(line + 15, NULL, 10);
        else if (long_ > 12 && !memcmp(line, "destination:", 12))
            f->destination = (struct text){line + 12, long_ - 12};
        else if (long_ > 8 && !memcmp(line, "receipt:", 8))
            f->receipt = (struct text){line + 8, long_ - 8};
        else if (long_ > 15 && !memcmp(line, "prefetch-count:", 15))
            f->prefetch = (size_t)strtoull(line + 15, NULL, 10);
        else if (long_ > 4 && !memcmp(line, "ack:", 4))
            f->ack = (struct text){line + 4, long_ - 4};
        else if (long_ > 3 && !memcmp(line, "id:", 3))
            f->id = (struct text){line + 3, long_ - 3};
    }
    const char *stop = length < 0 ? memchr(at, 0, (size_t)(end - at)) : at + length;
    if (!stop || stop >= end)
        return 0;
    f->body = (struct text){at, (size_t)(stop - at)};
    return (size_t)(stop + 1 - data);
}

static void leave(struct connection *c)
{
    for (struct destination *d = destinations; d < destinations + destination_count; d++)
        for (size_t i = 0; i < d->count; i++)
            if (d->subscribers[i] == c)
                d->subscribers[i] = d->subscribers[--d->count];
    close(c->file);
    free(c->in);
    free(c->out);
    free(c);
}

static void hear(struct connection *c)
{
    struct frame frame;
    size_t done = 0, size;
    ssize_t got = recv(c->file, c->in + c->have, READ_BYTES - c->have, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        leave(c);
        return;
    }
    c->have += (size_t)got;
    while ((size = parse(c->in + done, c->have - done, &frame))) {
        obey(c, &frame);
        done += size;
    }
    settle(c); /* before the bodies are moved */
    if (!done && c->have == READ_BYTES)
        errx(1, "a frame has more than %d bytes", READ_BYTES);
    memmove(c->in, c->in + done, c->have -= done);
}

static void welcome(int listener)
{
    int file, yes = 1;
    while ((file = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        struct connection *c = grown(NULL, sizeof *c);
        /* Pages of the buffer that are never written take no memory. */
        *c = (struct connection){.file = file, .in = grown(NULL, READ_BYTES)};
        watch(c, EPOLL_CTL_ADD, EPOLLIN);
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        err(1, "accept");
}

static int listening(void)
{
    struct sockaddr_in address = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size)
        || listen(listener, SOMAXCONN) || getsockname(listener, (struct sockaddr *)&address, &size))
        err(1, "cannot listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int words, char **arguments)
{
    useconds_t rest = words > 1 ? (useconds_t)atoi(arguments[1]) : 0;
    struct rlimit files;
    struct epoll_event events[EVENTS];
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    poller = epoll_create1(0);
    int listener = listening();
    struct connection door = {.file = listener};
    watch(&door, EPOLL_CTL_ADD, EPOLLIN);
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, -1);
        if (rest && count > 0) { /* let more data arrive */
            usleep(rest);
            count = epoll_wait(poller, events, EVENTS, -1);
        }
        for (int i = 0; i < count; i++) {
            /* It still exists: only its own events end it, and it is once in a batch. */
            struct connection *c = events[i].data.ptr;
            if (c != &door && events[i].events & EPOLLOUT)
                flush(c);
            if (c == &door)
                welcome(listener);
            else if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
                hear(c);
        }
    }
}
