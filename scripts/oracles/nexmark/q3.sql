-- What is sold in three states.
SELECT p.name, p.city, p.state, a.id FROM auctions AS a JOIN persons AS p ON p.id = a.seller
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');
-- What the job wrote.
SELECT * FROM read_json('{results}', format = 'newline_delimited', columns = {name: 'VARCHAR', city: 'VARCHAR', state: 'VARCHAR', auction: 'BIGINT'});
