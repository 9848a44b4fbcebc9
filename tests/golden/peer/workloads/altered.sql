-- ad-hoc incremental snapshots before and after statements that change a table: columns added, changed and dropped
-- @setup
DROP DATABASE IF EXISTS rddb; CREATE DATABASE rddb; USE rddb; SET SESSION time_zone='+00:00';
CREATE TABLE sig (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048));
CREATE TABLE t (id INT PRIMARY KEY, v INT, gone INT, n INT, ts TIMESTAMP(4) NULL, j JSON, f FLOAT);
INSERT INTO t VALUES (1,1,1,1,'2024-01-01 00:00:00.1200','{"a":[1,2]}',16777216),(2,2,2,2,'2024-01-01 00:00:00','{"a": 0.1}',0.1),(3,3,3,3,NULL,NULL,NULL),(4,4,4,4,'2024-07-01 12:00:00.5','[1, 2]',3.1415927);
-- @change
USE rddb;
INSERT INTO sig VALUES ('s1','execute-snapshot','{"data-collections":["rddb.t"],"type":"incremental"}');
-- @wait 4
USE rddb; SET SESSION time_zone='+00:00';
ALTER TABLE t ADD w INT NOT NULL DEFAULT 7, ADD a TIMESTAMP(3) NULL DEFAULT '2024-02-03 04:05:06.700', DROP COLUMN gone, MODIFY n BIGINT;
UPDATE t SET v = 9 WHERE id = 3;
INSERT INTO t (id, v) VALUES (5, 5);
-- @wait 2
USE rddb;
INSERT INTO sig VALUES ('s2','execute-snapshot','{"data-collections":["rddb.t"],"type":"incremental"}');
-- @wait 4
USE rddb; UPDATE t SET v = 10 WHERE id = 4;
