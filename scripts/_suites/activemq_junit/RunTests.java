package org.apache.activemq.transport.stomp;

import java.util.HashMap;
import java.util.Map;

import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs test classes, and prints the word SPEC and a line of JSON after each test. */
public final class RunTests extends RunListener {
    private final Map<String, String> found = new HashMap<String, String>();

    public static void main(String[] classes) throws Exception {
        JUnitCore core = new JUnitCore();
        core.addListener(new RunTests());
        for (String each : classes) {
            core.run(Class.forName("org.apache.activemq.transport.stomp." + each));
        }
        // Do not wait for the tests' remaining threads.
        System.exit(0);
    }

    @Override
    public void testStarted(Description test) {
        found.put(name(test), "passed");
    }

    @Override
    public void testFailure(Failure failure) {
        found.put(name(failure.getDescription()), "failed");
        String trace = failure.getTrace();
        System.out.println("WHY " + name(failure.getDescription()) + ": " + head(trace));
    }

    @Override
    public void testAssumptionFailure(Failure failure) {
        found.put(name(failure.getDescription()), "pending");
        System.out.println("WHY " + name(failure.getDescription()) + ": " + failure.getMessage());
    }

    @Override
    public void testIgnored(Description test) {
        say(name(test), "pending");
    }

    @Override
    public void testFinished(Description test) {
        say(name(test), found.get(name(test)));
    }

    private static void say(String name, String status) {
        System.out.println("SPEC {\"name\": \"" + name + "\", \"status\": \"" + status + "\"}");
    }

    private static String name(Description test) {
        return test.getTestClass().getSimpleName() + "." + test.getMethodName();
    }

    private static String head(String trace) {
        StringBuilder lines = new StringBuilder();
        for (String line : trace.split("\n")) {
            boolean isTheirs = line.contains("transport.stomp.") || !line.startsWith("\tat ");
            if (isTheirs && lines.length() < 1000) {
                lines.append(line.trim()).append(" | ");
            }
        }
        return lines.toString();
    }
}
