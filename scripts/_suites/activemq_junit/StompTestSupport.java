// A replacement for the base class of ActiveMQ's STOMP tests, which starts a broker in the same
// process. This one connects to a broker outside. The tests determine the names.
package org.apache.activemq.transport.stomp;

import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.HashMap;
import java.util.List;
import java.util.Vector;
import java.util.concurrent.CopyOnWriteArrayList;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.jmx.BrokerViewMBean;
import org.apache.activemq.broker.jmx.QueueViewMBean;
import org.apache.activemq.broker.jmx.TopicViewMBean;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.rules.TestName;

public class StompTestSupport {
    static final int OUTSIDE = Integer.getInteger("suites.port");
    private static final int SILENCE_MS = 100;

    protected BrokerService brokerService;
    protected int port = OUTSIDE;
    protected StompConnection stompConnection;
    protected ActiveMQConnectionFactory cf;
    protected Vector<Throwable> exceptions = new Vector<Throwable>();

    @Rule public TestName name = new TestName();

    private final List<Socket> sockets = new CopyOnWriteArrayList<Socket>();
    private JmsByStomp jms;
    private OutsideBroker outside;

    @Before
    public void setUp() throws Exception {
        drain();
        jms = new JmsByStomp(OUTSIDE);
        cf = jms.factory();
        outside = new OutsideBroker(OUTSIDE, jms);
        brokerService = outside;
    }

    @After
    public void tearDown() throws Exception {
        stompConnection = null;
        if (jms != null) {
            jms.close();
        }
        for (Socket each : sockets) {
            each.close();
        }
        sockets.clear();
    }

    /** Remove durable subscriptions and messages of other tests: each expects an empty broker. */
    private void drain() throws Exception {
        for (JsonNode each : new Figures(OUTSIDE).durables()) {
            StompConnection leaver = new StompConnection();
            leaver.open("127.0.0.1", OUTSIDE);
            leaver.connect("system", "manager", each.path("client_id").asText());
            HashMap<String, String> headers = new HashMap<String, String>();
            headers.put("activemq.subscriptionName", each.path("name").asText());
            leaver.unsubscribe(each.path("destination").asText(), headers);
            leaver.disconnect("over");
            leaver.receive();
            leaver.close();
        }
        StompConnection cleaner = new StompConnection();
        cleaner.open("127.0.0.1", OUTSIDE);
        try {
            cleaner.connect("system", "manager");
            cleaner.subscribe("/queue/>", "auto", new HashMap<String, String>());
            while (true) {
                cleaner.receive(SILENCE_MS);
            }
        } catch (SocketTimeoutException nothingIsLeft) {
            cleaner.disconnect("over");
            cleaner.receive();
        } finally {
            cleaner.close();
        }
    }

    public String getName() {
        return name.getMethodName();
    }

    protected String getQueueName() {
        return getClass().getName() + "." + getName();
    }

    protected String getTopicName() {
        return getQueueName();
    }

    protected Socket createSocket() throws IOException {
        return new Socket("127.0.0.1", port);
    }

    protected StompConnection stompConnect() throws Exception {
        if (stompConnection == null) {
            stompConnection = new StompConnection();
        }
        return stompConnect(stompConnection);
    }

    protected StompConnection stompConnect(StompConnection connection) throws Exception {
        Socket socket = createSocket();
        sockets.add(socket);
        connection.open(socket);
        return connection;
    }

    protected void stompDisconnect() throws Exception {
        if (stompConnection != null) {
            stompConnection.disconnect();
            stompConnection.close();
            stompConnection = null;
        }
    }

    protected BrokerViewMBean getProxyToBroker() {
        return outside.view(BrokerViewMBean.class, "");
    }

    protected QueueViewMBean getProxyToQueue(String queue) {
        return outside.view(QueueViewMBean.class, queue);
    }

    protected TopicViewMBean getProxyToTopic(String topic) {
        return outside.view(TopicViewMBean.class, topic);
    }

    // Settings of some tests, without effect: the outside broker is configured already.

    protected void applyBrokerPolicies() throws Exception {}

    protected BrokerPlugin configureAuthentication() throws Exception {
        return null;
    }

    protected BrokerPlugin configureAuthorization() throws Exception {
        return null;
    }
}
