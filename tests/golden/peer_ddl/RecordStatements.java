import io.debezium.config.Configuration;
import io.debezium.connector.binlog.jdbc.BinlogSystemVariables.BinlogScope;
import io.debezium.connector.common.CdcSourceTaskContext;
import io.debezium.connector.mysql.MySqlConnectorConfig;
import io.debezium.connector.mysql.MySqlDatabaseSchema;
import io.debezium.connector.mysql.MySqlOffsetContext;
import io.debezium.connector.mysql.MySqlPartition;
import io.debezium.connector.mysql.jdbc.MySqlValueConverters;
import io.debezium.relational.CustomConverterRegistry;
import io.debezium.relational.TableId;
import io.debezium.relational.history.ConnectTableChangeSerializer;
import io.debezium.relational.history.TableChanges.TableChange;
import io.debezium.schema.SchemaChangeEvent;
import io.debezium.spi.topic.TopicNamingStrategy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;

/** Prints the schema changes that Debezium makes of statements; see README.md. */
public class RecordStatements {
    private static final Map<String, String> DEFAULTS = Map.of(
            "topic.prefix", "cap", "database.hostname", "h", "database.user", "u", "database.password", "p",
            "database.server.id", "1", "schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory",
            "schema.history.internal.kafka.topic", "x", "schema.history.internal.kafka.bootstrap.servers", "x",
            "x.server", "utf8mb4");

    private final ConnectTableChangeSerializer serializer;
    private final MySqlDatabaseSchema schema;
    private final MySqlOffsetContext offset;
    private final boolean withFields;

    RecordStatements(Map<String, String> properties) {
        Configuration configuration = Configuration.from(properties);
        MySqlConnectorConfig config = new MySqlConnectorConfig(configuration);
        MySqlValueConverters converters = new MySqlValueConverters(config.getDecimalMode(), config.getTemporalPrecisionMode(),
                config.getBigIntUnsignedHandlingMode().asBigIntUnsignedMode(), config.binaryHandlingMode(),
                MySqlValueConverters::adjustTemporal, config.getEventConvertingFailureHandlingMode(), config.getServiceRegistry());
        @SuppressWarnings("unchecked")
        TopicNamingStrategy<TableId> topics = (TopicNamingStrategy<TableId>) config
                .getTopicNamingStrategy(MySqlConnectorConfig.TOPIC_NAMING_STRATEGY);
        schema = new MySqlDatabaseSchema(config, converters, topics, config.schemaNameAdjuster(), false,
                new CustomConverterRegistry(List.of()), new CdcSourceTaskContext<>(configuration, config, Map.of()));
        schema.setSystemVariables(BinlogScope.GLOBAL, Map.of("character_set_server", properties.get("x.server")));
        offset = MySqlOffsetContext.initial(config);
        serializer = new ConnectTableChangeSerializer(config.schemaNameAdjuster());
        withFields = properties.containsKey("x.fields");
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> properties = new HashMap<>(DEFAULTS);
        Properties file = new Properties();
        file.load(Files.newBufferedReader(Path.of(arguments[0])));
        file.forEach((name, value) -> properties.put((String) name, (String) value));
        RecordStatements recorder = new RecordStatements(properties);
        for (String line : Files.readString(Path.of(arguments[1])).split("\n;;\n")) {
            int tab = line.indexOf('\t');
            recorder.record(line.substring(0, tab).trim(), line.substring(tab + 1).stripTrailing());
        }
        System.exit(0);
    }

    /** Parses a statement in a database; ! before the database stands for a snapshot's statement. */
    private void record(String database, String sql) {
        System.out.println("## " + database + "\t" + sql);
        MySqlPartition partition = new MySqlPartition("cap", "db");
        try {
            List<SchemaChangeEvent> events = database.startsWith("!")
                    ? schema.parseSnapshotDdl(partition, sql, database.substring(1), offset, Instant.EPOCH)
                    : schema.parseStreamingDdl(partition, sql, database, offset, Instant.EPOCH);
            for (SchemaChangeEvent event : events) {
                schema.applySchemaChange(event);
                System.out.println("E " + describe(event));
            }
        }
        catch (RuntimeException error) {
            System.out.println("  ERROR " + error);
        }
    }

    private String describe(SchemaChangeEvent event) {
        Struct source = event.getSource();
        List<Struct> changes = new ArrayList<>();
        StringJoiner fields = new StringJoiner(",", "{", "}");
        for (TableChange change : event.getTableChanges()) {
            changes.add(serializer.toStruct(change));
            if (withFields && schema.schemaFor(change.getId()) != null) {
                for (Field field : schema.schemaFor(change.getId()).valueSchema().fields()) {
                    Schema type = field.schema();
                    List<Object> parts = new ArrayList<>(List.of(type.type().toString().toLowerCase()));
                    parts.add(type.name());
                    parts.add(type.isOptional());
                    parts.add(type.defaultValue());
                    fields.add(json(field.name()) + ":" + json(parts));
                }
            }
        }
        return "{\"type\":" + json(event.getType().toString()) + ",\"databaseName\":" + json(event.getDatabase())
                + ",\"ddl\":" + json(event.getDdl()) + ",\"source.db\":" + json(source.getString("db"))
                + ",\"source.table\":" + json(source.getString("table")) + ",\"tableChanges\":" + json(changes)
                + (withFields ? ",\"fields\":" + fields : "") + "}";
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Struct struct) {
            StringJoiner members = new StringJoiner(",", "{", "}");
            struct.schema().fields().forEach(field -> members.add(json(field.name()) + ":" + json(struct.get(field))));
            return members.toString();
        }
        if (value instanceof Collection<?> values) {
            StringJoiner elements = new StringJoiner(",", "[", "]");
            values.forEach(element -> elements.add(json(element)));
            return elements.toString();
        }
        if (value instanceof byte[] bytes) {
            return json(HexFormat.of().formatHex(bytes));
        }
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toString().toCharArray()) {
            text.append(c == '"' || c == '\\' ? "\\" + c : c < 32 ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return text.append('"').toString();
    }
}
