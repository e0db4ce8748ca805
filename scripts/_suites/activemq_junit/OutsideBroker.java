package org.apache.activemq.transport.stomp;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.util.Collections;
import java.util.List;

import javax.management.ObjectName;

import org.apache.activemq.broker.Broker;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.Connection;
import org.apache.activemq.broker.TransportConnector;
import org.apache.activemq.broker.jmx.BrokerView;
import org.apache.activemq.broker.jmx.ManagementContext;
import org.apache.activemq.usage.SystemUsage;

/** A substitute for the broker in the tests, with its figures only. */
final class OutsideBroker extends BrokerService {
    private final int port;
    private final Figures figures;
    private final JmsByStomp jms;

    OutsideBroker(int port, JmsByStomp jms) {
        this.port = port;
        this.jms = jms;
        figures = new Figures(port);
    }

    /** A bean of the broker or of a queue, limited to available figures. */
    <T> T view(Class<T> bean, String queue) {
        Object made = Proxy.newProxyInstance(bean.getClassLoader(), new Class<?>[] {bean},
            (self, method, given) -> answer(method.getName(), queue));
        return bean.cast(made);
    }

    private Object answer(String question, String queue) throws IOException {
        switch (question) {
            case "getQueueSize":
                return figures.depth(queue);
            case "getCurrentConnectionsCount":
                return clients();
            case "getQueues":
                return new ObjectName[figures.filledQueues()];
            case "getDurableTopicSubscribers":
                return new ObjectName[figures.durables(true)];
            case "getInactiveDurableTopicSubscribers":
                return new ObjectName[figures.durables(false)];
            case "getQueueSubscribers":
                return new ObjectName[figures.subscriptions("/queue/")];
            default:
                throw new NotByStomp("asks the broker by JMX: " + question);
        }
    }

    /** The number of clients, without JMS consumers, which have their own connections only here. */
    private int clients() throws IOException {
        return figures.sessions() - jms.consumers();
    }

    @Override
    public Broker getBroker() {
        return (Broker) Proxy.newProxyInstance(Broker.class.getClassLoader(),
            new Class<?>[] {Broker.class}, (self, method, given) -> {
                if (method.getName().equals("getClients")) {
                    return new Connection[clients()];
                }
                throw new NotByStomp("looks into the broker: " + method.getName());
            });
    }

    @Override
    public List<TransportConnector> getTransportConnectors() {
        return Collections.singletonList(new TransportConnector() {
            @Override
            public URI getConnectUri() throws IOException {
                return URI.create("stomp://127.0.0.1:" + port);
            }
        });
    }

    @Override
    public ManagementContext getManagementContext() {
        return new ManagementContext() {
            @Override
            public Object newProxyInstance(ObjectName name, Class bean, boolean broadcasts) {
                return view((Class<?>) bean, "");
            }
        };
    }

    @Override
    public BrokerView getAdminView() throws Exception {
        return new BrokerView(null, null) {
            @Override
            public ObjectName[] getTopicSubscribers() {
                try {
                    return new ObjectName[figures.subscriptions("/topic/")];
                } catch (IOException problem) {
                    throw new IllegalStateException(problem);
                }
            }
        };
    }

    @Override
    public Broker getRegionBroker() {
        throw new NotByStomp("looks into the broker: getRegionBroker");
    }

    @Override
    public SystemUsage getSystemUsage() {
        throw new NotByStomp("looks into the broker: getSystemUsage");
    }
}
