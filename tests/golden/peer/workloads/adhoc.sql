-- ad-hoc incremental snapshots: composite and string keys with conditions, a surrogate key, pause and resume, stop of one table of two
-- @setup
DROP DATABASE IF EXISTS sigdb; CREATE DATABASE sigdb; USE sigdb;
CREATE TABLE dbz_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);
CREATE TABLE comp (a INT UNSIGNED, b VARCHAR(10), c BIGINT, v INT, PRIMARY KEY (a, b, c)); CREATE TABLE str (code VARCHAR(20) PRIMARY KEY, v INT) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE sur (id INT PRIMARY KEY, u INT NOT NULL, v DECIMAL(6,2), UNIQUE KEY u (u)); CREATE TABLE one (id INT PRIMARY KEY, v INT); CREATE TABLE two (id BIGINT UNSIGNED PRIMARY KEY, v INT);
INSERT INTO one WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120) SELECT i, 0 FROM n;
INSERT INTO comp SELECT id DIV 7, CONCAT('k', id), -id, id FROM one WHERE id <= 60; INSERT INTO str SELECT CONCAT(IF(id % 2, 'Row ', 'row '), id), id FROM one WHERE id <= 45;
INSERT INTO str VALUES ('Ähre', 1), ('zebra', 2), ('', 3), ('it''s', 4), ('\\', 5); INSERT INTO sur SELECT id, 1000 - id * 3, id / 4 FROM one WHERE id <= 45; INSERT INTO two SELECT id + 5000000000, 0 FROM one;
-- @change
USE sigdb; INSERT INTO dbz_signal VALUES ('a1', 'execute-snapshot', '{"data-collections": ["sigdb.comp", "sigdb.str"], "type": "incremental", "additional-conditions": [{"data-collection": "sigdb.comp", "filter": "v < 30 OR b = ''k50''"}, {"data-collection": "sigdb.str", "filter": "code <> ''row 8''"}]}');
-- @wait 4
USE sigdb; UPDATE sur SET v = v + 1 WHERE id <= 5; INSERT INTO dbz_signal VALUES ('a2', 'execute-snapshot', '{"data-collections": ["sigdb.sur"], "type": "incremental", "surrogate-key": "u"}');
-- @wait 4
USE sigdb; INSERT INTO dbz_signal VALUES ('a3', 'execute-snapshot', '{"data-collections": ["sigdb.t.*o"], "type": "incremental"}'); INSERT INTO dbz_signal VALUES ('a4', 'pause-snapshot', '{"type": "incremental"}');
-- @wait 4
USE sigdb; UPDATE two SET v = v + 1 WHERE id > 5000000090; DELETE FROM two WHERE id IN (5000000001, 5000000119); INSERT INTO two VALUES (7, 7);
-- @wait 2
USE sigdb; INSERT INTO dbz_signal VALUES ('a5', 'resume-snapshot', '{"type": "incremental"}');
-- @wait 4
USE sigdb; INSERT INTO dbz_signal VALUES ('a6', 'execute-snapshot', '{"data-collections": ["sigdb.one", "sigdb.sur"], "type": "incremental"}'); INSERT INTO dbz_signal VALUES ('a7', 'stop-snapshot', '{"data-collections": ["sigdb.one"], "type": "incremental"}');
-- @wait 4
USE sigdb; UPDATE one SET v = 1 WHERE id < 4; UPDATE str SET v = 9 WHERE code = 'zebra';
