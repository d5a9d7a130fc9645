import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own sticky assignor, one assignment per line of input.
 *
 * First the input, one line per consumer: its id, then "topic:partition" for everything it owns. After the line "go" the
 * topics are known; every further line asks for one assignment and is answered with the number of partitions that moved.
 */
public class StickyTurns {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Map<String, Set<TopicPartition>> owned = new HashMap<>();
        Map<String, Integer> topics = new HashMap<>();
        for (String line = in.readLine(); !line.equals("go"); line = in.readLine()) {
            String[] words = line.split(" ");
            Set<TopicPartition> partitions = new HashSet<>();
            for (int i = 1; i < words.length; i++) {
                int colon = words[i].lastIndexOf(':');
                String topic = words[i].substring(0, colon);
                int number = Integer.parseInt(words[i].substring(colon + 1));
                partitions.add(new TopicPartition(topic, number));
                topics.merge(topic, number + 1, Math::max);
            }
            owned.put(words[0], partitions);
        }
        Map<String, Subscription> subscriptions = new HashMap<>();
        owned.forEach((consumer, partitions) -> subscriptions.put(
            consumer, new Subscription(new ArrayList<>(topics.keySet()), null, new ArrayList<>(partitions), 1, Optional.empty())));
        System.out.println("ready");
        while (in.readLine() != null) {
            Map<String, List<TopicPartition>> assigned =
                new CooperativeStickyAssignor().assign(topics, subscriptions);
            int stayed = 0;
            for (Map.Entry<String, List<TopicPartition>> entry : assigned.entrySet()) {
                Set<TopicPartition> before = owned.get(entry.getKey());
                for (TopicPartition partition : entry.getValue()) {
                    if (before.contains(partition)) stayed++;
                }
            }
            System.out.println(topics.values().stream().mapToInt(Integer::intValue).sum() - stayed);
        }
    }
}
