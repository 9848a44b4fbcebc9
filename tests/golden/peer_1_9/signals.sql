-- @setup
DROP DATABASE IF EXISTS sigdb;
CREATE DATABASE sigdb CHARACTER SET utf8mb4;
USE sigdb;
CREATE TABLE dbz_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);
CREATE TABLE big (id INT PRIMARY KEY, v INT, d DECIMAL(6,2), t TIMESTAMP(3) NULL, e ENUM('a','b'), b VARBINARY(4));
CREATE TABLE comp (a INT, b VARCHAR(10), v INT, PRIMARY KEY (a, b));
INSERT INTO big VALUES (1, 1, 1.50, '2024-01-02 03:04:05.120', 'a', x'00ff'), (2, 2, NULL, NULL, NULL, NULL), (3, 3, 3.00, '2024-01-02 03:04:05.000', 'b', ''), (4, 4, 4.00, NULL, 'a', x'01'), (5, 5, -5.25, NULL, 'b', x'02'), (6, 6, 6, NULL, 'a', NULL), (7, 7, 7, NULL, 'a', NULL);
INSERT INTO comp VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3);
-- @change
USE sigdb;
INSERT INTO big (id, v) VALUES (8, 8);
INSERT INTO dbz_signal VALUES ('s1', 'execute-snapshot', '{"data-collections": ["sigdb.big"], "type": "incremental"}');
-- @wait 6
USE sigdb;
UPDATE big SET v = 20 WHERE id = 2;
DELETE FROM big WHERE id = 3;
INSERT INTO dbz_signal VALUES ('s2', 'execute-snapshot', '{"data-collections": ["sigdb.comp", "sigdb.big"]}');
-- @wait 6
USE sigdb;
INSERT INTO dbz_signal VALUES ('s3', 'log', '{"message": "hello at offset {}"}');
UPDATE comp SET v = 30 WHERE a = 2;
INSERT INTO dbz_signal VALUES ('s4', 'no-such-signal', '{}');
DELETE FROM dbz_signal WHERE id = 's1';
ALTER TABLE big ADD COLUMN late INT DEFAULT 9;
INSERT INTO big (id, v) VALUES (9, 9);
INSERT INTO dbz_signal VALUES ('s5', 'execute-snapshot', '{"data-collections": ["sigdb.big"]}');
-- @wait 6
USE sigdb;
UPDATE big SET v = 90 WHERE id = 9;
