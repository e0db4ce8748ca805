package org.apache.activemq.transport.stomp;

import org.junit.AssumptionViolatedException;

/** A test asks for what no client of STOMP can do or see: it is left out, and says why. */
final class NotByStomp extends AssumptionViolatedException {
    private static final long serialVersionUID = 1;

    NotByStomp(String what) {
        super(what);
    }
}
