package org.apache.activemq.transport.stomp;

import org.junit.AssumptionViolatedException;

/** Thrown by a test that needs more than a STOMP client can do. The test is skipped. */
final class NotByStomp extends AssumptionViolatedException {
    private static final long serialVersionUID = 1;

    NotByStomp(String what) {
        super(what);
    }
}
