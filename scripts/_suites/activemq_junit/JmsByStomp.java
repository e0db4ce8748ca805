package org.apache.activemq.transport.stomp;

import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;

import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQBytesMessage;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTextMessage;
import org.apache.activemq.command.ActiveMQTopic;

/**
 * The part of JMS that the tests use, implemented in STOMP: texts and bytes are sent, and received
 * from a queue. Each connection and each consumer has its own STOMP connection.
 */
final class JmsByStomp {
    private final int port;
    private final List<Socket> connections = new CopyOnWriteArrayList<Socket>();
    private final List<Socket> consumers = new CopyOnWriteArrayList<Socket>();

    JmsByStomp(int port) {
        this.port = port;
    }

    ActiveMQConnectionFactory factory() {
        return new ActiveMQConnectionFactory() {
            @Override
            public Connection createConnection(String login, String passcode) throws JMSException {
                return connection(login, passcode);
            }
        };
    }

    /** The number of consumers. */
    int consumers() {
        int open = 0;
        for (Socket each : consumers) {
            open += each.isClosed() ? 0 : 1;
        }
        return open;
    }

    void close() throws IOException {
        for (Socket each : connections) {
            each.close();
        }
        for (Socket each : consumers) {
            each.close();
        }
    }

    private Connection connection(String login, String passcode) throws JMSException {
        StompConnection stomp = opened(login, passcode, connections);
        return made(Connection.class, (self, method, given) -> {
            switch (method.getName()) {
                case "createSession":
                    return session(stomp, login, passcode);
                case "start":
                    return null;
                case "close":
                    stomp.close();
                    return null;
                default:
                    throw new NotByStomp("needs JMS: Connection." + method.getName());
            }
        });
    }

    private Session session(StompConnection stomp, String login, String passcode) {
        return made(Session.class, (self, method, given) -> {
            switch (method.getName()) {
                case "createTextMessage":
                    ActiveMQTextMessage text = new ActiveMQTextMessage();
                    text.setText(given == null ? "" : (String) given[0]);
                    return text;
                case "createBytesMessage":
                    return new ActiveMQBytesMessage();
                case "createQueue":
                    return new ActiveMQQueue((String) given[0]);
                case "createTopic":
                    return new ActiveMQTopic((String) given[0]);
                case "createProducer":
                    return producer(stomp, (Destination) given[0]);
                case "createConsumer":
                    String selector = given.length > 1 ? (String) given[1] : "";
                    StompConnection own = opened(login, passcode, consumers);
                    return consumer(own, (Destination) given[0], selector);
                case "close":
                    return null;
                default:
                    throw new NotByStomp("needs JMS: Session." + method.getName());
            }
        });
    }

    private static MessageProducer producer(StompConnection stomp, Destination destination) {
        return made(MessageProducer.class, (self, method, given) -> {
            switch (method.getName()) {
                case "send":
                    send(stomp, destination, (Message) given[0]);
                    return null;
                case "close":
                    return null;
                default:
                    throw new NotByStomp("needs JMS: MessageProducer." + method.getName());
            }
        });
    }

    /** Send, and wait for the RECEIPT, as a JMS producer waits for the broker. */
    private static void send(StompConnection stomp, Destination to, Message message)
            throws Exception {
        Map<String, String> headers = new HashMap<String, String>();
        headers.put("destination", name(to));
        headers.put("persistent", "true");
        headers.put("receipt", "sent");
        for (Object property : Collections.list(message.getPropertyNames())) {
            String named = (String) property;
            headers.put(named, String.valueOf(message.getObjectProperty(named)));
        }
        byte[] body;
        if (message instanceof BytesMessage) {
            BytesMessage bytes = (BytesMessage) message;
            bytes.reset();
            body = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(body);
            headers.put("content-length", String.valueOf(body.length));
        } else {
            String text = ((TextMessage) message).getText();
            body = text == null ? new byte[0] : text.getBytes("UTF-8");
        }
        StringBuilder head = new StringBuilder("SEND\n");
        for (Map.Entry<String, String> each : headers.entrySet()) {
            head.append(escaped(each.getKey())).append(':');
            head.append(escaped(each.getValue())).append('\n');
        }
        // One byte more than the body, for the NUL.
        stomp.sendFrame(head.append('\n').toString(), Arrays.copyOf(body, body.length + 1));
        expect(stomp, "RECEIPT");
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace(":", "\\c");
    }

    private static MessageConsumer consumer(StompConnection stomp, Destination from, String selector)
            throws Exception {
        HashMap<String, String> headers = new HashMap<String, String>();
        headers.put("id", "jms");
        headers.put("receipt", "subscribed");
        if (!selector.isEmpty()) {
            headers.put("selector", selector);
        }
        stomp.subscribe(name(from), "auto", headers);
        expect(stomp, "RECEIPT");
        return made(MessageConsumer.class, (self, method, given) -> {
            switch (method.getName()) {
                case "receive":
                    return received(stomp, given == null ? 60_000 : (Long) given[0]);
                case "close":
                    stomp.close();
                    return null;
                default:
                    throw new NotByStomp("needs JMS: MessageConsumer." + method.getName());
            }
        });
    }

    /** The next message in the form of JMS, or null if none arrives in time. */
    private static Message received(StompConnection stomp, long timeout) throws Exception {
        StompFrame frame;
        try {
            frame = stomp.receive(timeout);
        } catch (SocketTimeoutException none) {
            return null;
        }
        ActiveMQTextMessage message = new ActiveMQTextMessage();
        message.setText(new String(frame.getContent(), "UTF-8"));
        message.setReadOnlyBody(true);
        for (Map.Entry<String, String> each : frame.getHeaders().entrySet()) {
            understand(message, each.getKey(), each.getValue());
        }
        return message;
    }

    private static void understand(ActiveMQTextMessage message, String name, String value)
            throws JMSException {
        switch (name) {
            case "correlation-id":
                message.setJMSCorrelationID(value);
                break;
            case "type":
                message.setJMSType(value);
                break;
            case "priority":
                message.setJMSPriority(Integer.parseInt(value));
                break;
            case "timestamp":
                message.setJMSTimestamp(Long.parseLong(value));
                break;
            case "redelivered":
                message.setJMSRedelivered(Boolean.parseBoolean(value));
                break;
            case "JMSXGroupID":
                message.setGroupID(value);
                break;
            case "JMSXUserID":
                message.setUserID(value);
                break;
            default:
                message.setStringProperty(name, value);
        }
    }

    private StompConnection opened(String login, String passcode, List<Socket> beside)
            throws JMSException {
        try {
            Socket socket = new Socket("127.0.0.1", port);
            socket.setTcpNoDelay(true);
            beside.add(socket);
            StompConnection stomp = new StompConnection();
            stomp.open(socket);
            HashMap<String, String> headers = new HashMap<String, String>();
            headers.put("login", login);
            headers.put("passcode", passcode);
            headers.put("accept-version", "1.1");
            stomp.connect(headers);
            stomp.setVersion("1.1");
            return stomp;
        } catch (Exception problem) {
            throw (JMSException) new JMSException("no connection").initCause(problem);
        }
    }

    private static void expect(StompConnection stomp, String action) throws Exception {
        StompFrame frame = stomp.receive();
        if (!action.equals(frame.getAction())) {
            throw new JMSException("expected " + action + ", got " + frame);
        }
    }

    private static String name(Destination destination) {
        ActiveMQDestination named = (ActiveMQDestination) destination;
        return (named.isTopic() ? "/topic/" : "/queue/") + named.getPhysicalName();
    }

    private static <T> T made(Class<T> kind, InvocationHandler answers) {
        return kind.cast(
            Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, answers));
    }
}
