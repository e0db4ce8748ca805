package org.apache.activemq.transport.stomp;

import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.util.Base64;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/** The figures of trio_stomp as JSON, in place of ActiveMQ's beans. */
final class Figures {
    private final int port;

    Figures(int port) {
        this.port = port;
    }

    /** The number of messages of a queue, including unacknowledged ones. */
    long depth(String queue) throws IOException {
        for (JsonNode each : queues()) {
            if (each.path("destination").asText().equals("/queue/" + queue)) {
                return held(each);
            }
        }
        return 0;
    }

    int filledQueues() throws IOException {
        int count = 0;
        for (JsonNode each : queues()) {
            boolean isQueue = each.path("destination").asText().startsWith("/queue/");
            count += isQueue && held(each) > 0 ? 1 : 0;
        }
        return count;
    }

    int sessions() throws IOException {
        int count = 0;
        for (JsonNode each : page("/connz?limit=1000&state=any").path("connections")) {
            count += each.path("state").asText().equals("open") ? 1 : 0;
        }
        return count;
    }

    /** Subscriptions of connected sessions to destinations with this prefix. */
    int subscriptions(String beginning) throws IOException {
        int count = 0;
        for (JsonNode each : page("/subsz?limit=1000&state=connected").path("subscriptions")) {
            count += each.path("destination").asText().startsWith(beginning) ? 1 : 0;
        }
        return count;
    }

    int durables(boolean active) throws IOException {
        int count = 0;
        for (JsonNode each : durables()) {
            count += each.path("state").asText().equals("connected") == active ? 1 : 0;
        }
        return count;
    }

    JsonNode durables() throws IOException {
        return page("/subsz?limit=1000&state=durable").path("subscriptions");
    }

    private JsonNode queues() throws IOException {
        return page("/queuez?limit=1000").path("queues");
    }

    private static long held(JsonNode queue) {
        return queue.path("input_depth").asLong()
            + queue.path("stale_depth").asLong()
            + queue.path("ack_depth").asLong();
    }

    private JsonNode page(String path) throws IOException {
        URL address = new URL("http://127.0.0.1:" + port + path);
        HttpURLConnection asked = (HttpURLConnection) address.openConnection();
        String login = Base64.getEncoder().encodeToString("system:manager".getBytes("UTF-8"));
        asked.setRequestProperty("Authorization", "Basic " + login);
        try (InputStream answer = asked.getInputStream()) {
            return new ObjectMapper().readTree(answer);
        }
    }
}
