-- The mean winning price of the last ten auctions of each seller.
SELECT seller, sum(price)::DOUBLE / count(*) FROM (
  SELECT * FROM winning QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, auction DESC) <= 10)
GROUP BY ALL;
-- What the job wrote.
SELECT row[1]::BIGINT, row[2] FROM read_json('{results}', format = 'newline_delimited', columns = {kind: 'VARCHAR', row: 'DOUBLE[]'})
GROUP BY row HAVING sum(adds(kind)) > 0;
