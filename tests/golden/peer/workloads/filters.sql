-- filters, keys and columns under DDL
-- @setup
CREATE DATABASE a; CREATE DATABASE `a-b`; CREATE DATABASE out_db; USE a;
CREATE TABLE t1 (id INT PRIMARY KEY, email VARCHAR(40), secret VARCHAR(20), note TEXT, code CHAR(6), bin VARBINARY(10), n DECIMAL(6,2));
CREATE TABLE t2 (k1 INT, k2 VARCHAR(10), v INT, PRIMARY KEY (k1, k2));
CREATE TABLE nokey (g INT, s VARCHAR(10), v INT);
CREATE TABLE ukey (a INT NOT NULL, b VARCHAR(10) NOT NULL, v INT, UNIQUE (a, b));
CREATE TABLE Mixed_Case (Id INT PRIMARY KEY, Name VARCHAR(20));
CREATE TABLE `we.ird` (`k.1` INT PRIMARY KEY, `v,2` VARCHAR(10), `-x` INT, `1st` INT, `sp ace` INT, `ünï` INT);
CREATE TABLE `a-b`.t1 (id INT PRIMARY KEY, email VARCHAR(40)); CREATE TABLE out_db.o1 (id INT PRIMARY KEY, v INT); CREATE TABLE hidden (id INT PRIMARY KEY, v INT);
INSERT INTO t1 VALUES (1,'ann@example.com','s3cr3t','a long note é','abc',X'0102',1.50),(2,NULL,NULL,NULL,NULL,NULL,NULL),(3,'','','','','',0);
INSERT INTO t2 VALUES (1,'one',1),(2,'two',2); INSERT INTO nokey VALUES (1,'x',1),(1,'y',2),(NULL,NULL,3); INSERT INTO ukey VALUES (1,'u',1);
INSERT INTO Mixed_Case VALUES (1,'Name'); INSERT INTO `we.ird` VALUES (1,'w',1,1,1,1); INSERT INTO `a-b`.t1 VALUES (1,'b@x'); INSERT INTO out_db.o1 VALUES (1,1); INSERT INTO hidden VALUES (1,1);
-- @change
USE a;
INSERT INTO t1 VALUES (4,'dörte@example.org','ünïcödé-sécrét','nöte','ÄÖÜ',X'FF00',-1.25); UPDATE t1 SET secret = 'changed', email = UPPER(email) WHERE id = 1; UPDATE t1 SET id = 40 WHERE id = 4; DELETE FROM t1 WHERE id = 2;
UPDATE t2 SET v = 10 WHERE k1 = 1; UPDATE t2 SET k2 = 'uno' WHERE k1 = 1; UPDATE t2 SET k1 = 3, k2 = 'three', v = 33 WHERE k1 = 2; DELETE FROM t2 WHERE k1 = 3; INSERT INTO t2 VALUES (9,'nine',9);
UPDATE nokey SET v = v + 1; UPDATE nokey SET g = 5 WHERE s = 'x'; UPDATE nokey SET s = NULL WHERE g = 5; DELETE FROM nokey WHERE s = 'y'; INSERT INTO nokey VALUES (7,'seven',7),(NULL,'n',8);
UPDATE ukey SET v = 2; UPDATE ukey SET b = 'w'; DELETE FROM ukey; INSERT INTO ukey VALUES (2,'z',0);
UPDATE Mixed_Case SET NAME = 'other'; UPDATE Mixed_Case SET ID = 2; UPDATE `we.ird` SET `k.1` = 2; UPDATE `we.ird` SET `v,2` = 'ww'; INSERT INTO `a-b`.t1 VALUES (2,'c@y'); INSERT INTO out_db.o1 VALUES (2,2); INSERT INTO hidden VALUES (2,2);
ALTER TABLE t1 ADD COLUMN secret2 VARCHAR(10) DEFAULT 'dflt', ADD COLUMN more TEXT; INSERT INTO t1 (id, secret, secret2, more) VALUES (5,'s','s2','more text here'); ALTER TABLE t1 RENAME COLUMN secret TO open_; INSERT INTO t1 (id, open_) VALUES (6,'now open');
ALTER TABLE hidden ADD x INT; RENAME TABLE hidden TO shown; INSERT INTO shown VALUES (3,3,3); RENAME TABLE shown TO hidden, t2 TO hidden2; INSERT INTO hidden2 VALUES (11,'h',1); RENAME TABLE hidden2 TO t2; INSERT INTO t2 VALUES (12,'t',1);
CREATE TABLE out_db.o2 LIKE a.t2; INSERT INTO out_db.o2 VALUES (1,'o',1); RENAME TABLE out_db.o2 TO a.t3; INSERT INTO t3 VALUES (2,'in',2); DROP TABLE out_db.o1; ALTER DATABASE out_db CHARACTER SET latin1; CREATE TABLE hidden9 (id INT PRIMARY KEY); INSERT INTO hidden9 VALUES (1); DROP TABLE hidden9, t3;
BEGIN; INSERT INTO t1 (id) VALUES (100); INSERT INTO hidden VALUES (100,1,1); INSERT INTO t2 VALUES (100,'tx',1); INSERT INTO out_db.o2 VALUES (1,1,1); COMMIT; BEGIN; INSERT INTO hidden VALUES (101,1,1); COMMIT;
TRUNCATE TABLE nokey; TRUNCATE TABLE hidden; DROP DATABASE out_db; DROP TABLE ukey;
