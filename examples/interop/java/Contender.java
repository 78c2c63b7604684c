import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.Lease;
import io.etcd.jetcd.Lock;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.lock.LockResponse;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Contender in Java, with jetcd's lock client. See ../main.rs.
 *
 * <pre>
 * mvn -q compile dependency:build-classpath -Dmdep.outputFile=classpath
 * ETCDCTL_ENDPOINTS=http://127.0.0.1:2379 java -cp "$(cat classpath):../../../target/tools/peers/java/classes" Contender counter 40
 * </pre>
 */
final class Contender {
    private static final ByteSequence NAME = ByteSequence.from("locks/counter", StandardCharsets.UTF_8);
    /** TTL of the lease to which the lock is attached, in seconds. */
    private static final long TTL = 10;

    public static void main(String[] args) throws Exception {
        Path file = Path.of(args[0]);
        int rounds = Integer.parseInt(args[1]);
        String[] endpoints = System.getenv("ETCDCTL_ENDPOINTS").split(",");
        try (Client client = Client.builder().endpoints(endpoints).build()) {
            Lease leases = client.getLeaseClient();
            Lock locks = client.getLockClient();
            // One lease is one owner: threads that exclude each other need one each.
            long lease = leases.grant(TTL).get().getID();
            try (var renewal = leases.keepAlive(lease, new EndsWithLease())) {
                for (int round = 0; round < rounds; round++) {
                    LockResponse locked = locks.lock(NAME, lease).get();
                    int count = count(file);
                    System.out.println(count + " jetcd " + locked.getHeader().getRevision() + " " + locked.getKey());
                    locks.unlock(locked.getKey()).get();
                }
            }
            leases.revoke(lease).get();
        }
    }

    /** Reads, waits, writes: correct only if no other contender does so in between. */
    private static int count(Path file) throws IOException, InterruptedException {
        int count = Integer.parseInt(Files.readString(file).trim()) + 1;
        Thread.sleep(5);
        Files.writeString(file, count + "\n");
        return count;
    }

    /** Ends the process when the lease is no longer renewed: jetcd does not stop the work whose lock is lost. */
    private static final class EndsWithLease implements StreamObserver<LeaseKeepAliveResponse> {
        @Override
        public void onNext(LeaseKeepAliveResponse renewed) {}

        @Override
        public void onError(Throwable error) {
            System.err.println("java contender: the lease is not renewed: " + error);
            Runtime.getRuntime().halt(1);
        }

        @Override
        public void onCompleted() {}
    }
}
